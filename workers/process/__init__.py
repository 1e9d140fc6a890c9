"""A worker process: its long-lived resources and the leases on its rounds and stages."""
