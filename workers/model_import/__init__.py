"""Import a job's model file and store its tuning tasks; start reading in `run.py`."""
