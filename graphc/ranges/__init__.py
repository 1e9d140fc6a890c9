"""One library for a range of input shapes."""
