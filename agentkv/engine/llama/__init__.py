"""Everything that touches llama.cpp."""
