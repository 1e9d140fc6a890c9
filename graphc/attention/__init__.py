"""Attention over caches that grow."""
