"""Pure functions on a job's data: curve, decisions, verdict, and comparison of jobs."""
