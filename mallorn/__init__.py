"""Mallorn tunes tensor programs for the hardware their users own."""

from mallorn.client import Client
from mallorn.core.errors import MallornError
from mallorn.core.version import VERSION
from mallorn.exporting import to_onnx
from mallorn.job import Job
from mallorn.tuning import tune

__all__ = ["Client", "Job", "MallornError", "__version__", "to_onnx", "tune"]

__version__ = VERSION
