"""What happens to a job, as it happens."""
