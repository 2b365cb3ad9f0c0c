"""Benchmarks of documents far past the context window: how many fit on disk, and what is found, said and restored."""
