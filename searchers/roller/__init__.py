"""Constructs schedules: tiles that fit a machine, ranked by an analytic time model."""
