"""A constructor of schedules: tiles that fit a machine, ranked by the time they should take."""
