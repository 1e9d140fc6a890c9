"""Checks of `mallorn doctor`: data directory, database, artifact files and service."""
