"""Tensor programs: read, refused, described and named."""
