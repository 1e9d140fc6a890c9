"""Measure each device's machine once: peak, cache and memory bandwidths."""
