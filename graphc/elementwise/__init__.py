"""Passes that vectorise element-wise functions and cumulative sums."""
