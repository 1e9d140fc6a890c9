"""Generate tasks for datasets, with shapes close to those of real networks."""
