"""Tuning records and datasets in files."""
