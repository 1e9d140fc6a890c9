"""Planning, sweeping and reaping: small Celery tasks on the queue `control`, and their beat."""
