"""Passes that compute constants at compile time and store equal ones once."""
