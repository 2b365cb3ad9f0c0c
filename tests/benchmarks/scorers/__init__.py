"""Figures of research benchmarks from their raw records: one pure function each."""
