"""Training data for cost models, from databases or files, and the bases that are trained before any job."""
