"""Batch samplers, one per file."""
