"""Benchmarks: one file a benchmark, one command each; ratios measured in one run, with the inputs' hashes."""
