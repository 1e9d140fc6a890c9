"""A round of tuning, from its claim to its last commit; `run.py` reads top to bottom. Training follows it."""
