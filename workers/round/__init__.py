"""A round of tuning: propose, measure and commit candidates (`run.py`), then train."""
