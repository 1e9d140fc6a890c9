"""Recurrent layers as one function that steps through a sequence."""
