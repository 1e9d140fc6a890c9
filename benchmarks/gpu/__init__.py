"""Measures what the product makes for a GPU, on a machine that can be had for some minutes only."""
