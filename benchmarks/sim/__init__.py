"""Recorded and synthetic tuning curves, and the planner played over them."""
