"""One library for a range of shapes."""
