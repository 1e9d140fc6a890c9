"""Zero- and one-shot tuning: propose candidates for tasks without measuring the tasks."""
