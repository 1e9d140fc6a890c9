"""A worker process: its resources, and the leases on rounds and stages that it runs."""
