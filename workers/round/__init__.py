"""A round of tuning: claim, propose, measure, commit (see `run.py`); then the model is trained."""
