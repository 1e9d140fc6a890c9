"""Coordinates processes on one host: core locks, measured load, priority and memory."""
