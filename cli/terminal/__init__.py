"""Consoles, shared options, progress bars and error messages of all commands."""
