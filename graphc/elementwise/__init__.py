"""Vectorised functions of single numbers, and cumulative sums."""
