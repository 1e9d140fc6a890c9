"""Whole models on this host: compiled, held by engines, compared, and timed in turn."""
