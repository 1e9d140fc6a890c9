"""Connects commands to a coordinator, to the embedded stack, or only to a data directory."""
