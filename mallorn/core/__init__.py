"""Definitions shared by all packages; imports little besides pydantic and fsspec."""
