"""Imports a job's model file and stores its tasks; start reading in `run.py`."""
