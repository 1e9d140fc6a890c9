"""Checks of `mallorn doctor`: data directory, database, files in the artifact store, and service."""
