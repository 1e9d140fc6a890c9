"""Measurements of the dataset."""
