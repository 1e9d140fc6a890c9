"""Compile a model with its schedules to a library, using stock TVM only."""
