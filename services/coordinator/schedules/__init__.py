"""The best known schedules, and a job's exported logs."""
