"""A model file becomes tasks; `run.py` reads top to bottom."""
