"""Routes to submit, list, show, pause, resume, cancel and delete jobs."""
