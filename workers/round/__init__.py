"""A round of tuning: claim, propose, measure, commit (see `run.py`); then training."""
