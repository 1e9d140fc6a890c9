"""Passes on matrix products."""
