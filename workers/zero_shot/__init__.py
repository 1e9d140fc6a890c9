"""Zero- and one-shot tuning: sources of candidates for tasks that are not measured."""
