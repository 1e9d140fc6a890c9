"""Propose candidates for tasks that are not measured, with nothing or one trial per task."""
