"""Trained cost models and their versions."""
