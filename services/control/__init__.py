"""Planning, sweeping and lease reaping: Celery tasks of the queue `control`, and their timer."""
