"""The end of a job: check and export the winners, compile the whole model and time it."""
