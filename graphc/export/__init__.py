"""A model and its schedules into a library, with stock TVM alone; what an export carries for it."""
