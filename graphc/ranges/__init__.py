"""Passes and functions that build one library for a range of input shapes."""
