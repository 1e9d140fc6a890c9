"""Passes on attention over caches that grow."""
