"""Texts and table columns on a job's results and decisions, for terminals and reports."""
