"""Candidates and whole models to libraries, and the outputs that these must have."""
