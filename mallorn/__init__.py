"""Mallorn tunes tensor programs for the hardware their users own."""

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from mallorn import errors
from mallorn.core.errors import MallornError
from mallorn.core.version import VERSION

if TYPE_CHECKING:
    from mallorn.client.coordinator_client import Client
    from mallorn.client.job import Job
    from mallorn.client.onnx_export import to_onnx
    from mallorn.client.tune_model import tune

__all__ = ["Client", "Job", "MallornError", "__version__", "errors", "to_onnx", "tune"]

__version__ = VERSION
# Imported on first use: every process of the service imports this package, but few use HTTP.
_FILES: Final = {"Client": "coordinator_client", "Job": "job", "to_onnx": "onnx_export", "tune": "tune_model"}


def __getattr__(name: str) -> Any:
    if name not in _FILES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"mallorn.client.{_FILES[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
