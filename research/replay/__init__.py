"""Searches replayed on recorded measurements: no compiler, no device, no TVM in the process."""
