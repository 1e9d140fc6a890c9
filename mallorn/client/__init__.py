"""The client of a coordinator: models, jobs, their progress and results, and `mallorn.tune`."""

from typing import TYPE_CHECKING

from mallorn import __getattr__ as __getattr__  # imports the client, and HTTP with it, on first use

if TYPE_CHECKING:
    from mallorn.client.coordinator_client import Client as Client
