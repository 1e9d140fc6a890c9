"""Measurers, which build and time the candidates of a round."""
