"""Norms and softmaxes, row by row or in parts."""
