"""Texts and table columns for a job's figures and decisions, for the terminal and reports."""
