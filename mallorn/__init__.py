"""Mallorn tunes tensor programs for the hardware their users own."""

from mallorn.client import Client
from mallorn.core.errors import MallornError
from mallorn.core.version import VERSION
from mallorn.job import Job

__all__ = ["Client", "Job", "MallornError", "__version__"]

__version__ = VERSION
