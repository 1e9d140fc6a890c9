"""Mallorn: auto-tuning of tensor programs as a service."""
