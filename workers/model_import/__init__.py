"""Imports a job's model file and stores its tuning tasks; start reading in `run.py`."""
