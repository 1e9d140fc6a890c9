"""Finds out once what a device's machine computes and moves."""
