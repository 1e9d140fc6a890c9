"""Consoles, options, progress bars and error messages that all commands share."""
