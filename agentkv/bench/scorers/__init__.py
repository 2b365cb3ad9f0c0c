"""From raw records to figures: one pure module a benchmark. Loads no model, no llama.cpp and no store."""
