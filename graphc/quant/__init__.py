"""Passes that compute with numbers of few bits, by the instructions made for them."""
