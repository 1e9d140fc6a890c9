"""Measure the peak speed, cache sizes and bandwidths of each device's machine, once."""
