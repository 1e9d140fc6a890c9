"""Compiles whole models, loads them in engines, compares outputs, and times engines in
turn."""
