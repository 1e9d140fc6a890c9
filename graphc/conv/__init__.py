"""Convolutions, pass by pass."""
