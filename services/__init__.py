"""The coordinator, control, the planner and the dashboard."""
