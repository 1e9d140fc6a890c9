"""Compiles whole models, loads them in engines, compares their outputs, and times them in turn."""
