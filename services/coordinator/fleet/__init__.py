"""Devices and workers, and what they did lately."""
