"""Generate tuning tasks whose shapes are close to those of layers in real networks."""
