"""The schedules of a program: sketches, decisions, and what cost models see of them."""
