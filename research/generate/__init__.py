"""Generates tasks near those of real networks, for datasets."""
