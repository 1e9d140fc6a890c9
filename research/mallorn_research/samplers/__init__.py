"""Batch samplers that research compares."""
