"""Compile whole models, run them in engines, compare outputs and time the engines."""
