"""The client of a coordinator: models, jobs, their progress and results, and `mallorn.tune`."""

from mallorn.client.coordinator_client import Client

__all__ = ["Client"]
