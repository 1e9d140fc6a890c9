"""Passes on convolutions."""
