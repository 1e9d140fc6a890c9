"""The last stage of a job: export its best schedules, compile the whole model, time it."""
