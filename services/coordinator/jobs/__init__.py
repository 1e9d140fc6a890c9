"""Routes for jobs (submit, list, show, pause, resume, cancel, delete) and their measurements."""
