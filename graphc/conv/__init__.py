"""Passes that rewrite convolutions."""
