"""Batch samplers, one file each."""
