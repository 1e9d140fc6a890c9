"""Groupings of tasks that research compares."""
