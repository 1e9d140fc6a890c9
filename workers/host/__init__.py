"""Coordinates processes on one host: core locks, measured load and memory."""
