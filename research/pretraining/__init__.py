"""Training data for cost models, from databases or files, and pretraining of base models."""
