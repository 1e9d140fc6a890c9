"""Passes that annotate tensor functions for the scheduler."""
