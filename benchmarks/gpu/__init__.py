"""Benchmarks of the product on a GPU, on a machine that is available for minutes only."""
