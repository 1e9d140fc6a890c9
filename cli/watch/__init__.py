"""Shows a job's progress and its result in a terminal."""
