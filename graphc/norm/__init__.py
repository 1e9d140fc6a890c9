"""Passes on norms and softmax, computed row by row or in parts."""
