"""Searchers that research compares; the service finds them by their registered names."""
