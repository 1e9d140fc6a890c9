"""Mallorn tunes tensor programs for the hardware their users own."""

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from mallorn.core import errors
from mallorn.core.errors import MallornError
from mallorn.core.version import VERSION

if TYPE_CHECKING:
    from mallorn.client import Client
    from mallorn.job import Job
    from mallorn.onnx_export import to_onnx
    from mallorn.tune_model import tune

__all__ = ["Client", "Job", "MallornError", "__version__", "errors", "to_onnx", "tune"]

__version__ = VERSION
# Imported on first use: every process of the service imports this package, but few use HTTP.
_LAZY_IMPORTS: Final = {
    "Client": "mallorn.client",
    "Job": "mallorn.job",
    "to_onnx": "mallorn.onnx_export",
    "tune": "mallorn.tune_model",
}


def __getattr__(name: str) -> Any:
    if name not in _LAZY_IMPORTS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_LAZY_IMPORTS[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
