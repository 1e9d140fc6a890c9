"""The coordinator, the control process, the planner and the dashboard."""
