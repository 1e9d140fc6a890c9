"""Call models that Mallorn compiled: `Session("model.so").run({"x": x})`."""

from pathlib import Path
from typing import Final

from mallorn_runtime.errors import InputRefused, LibraryRefused, OptionRefused, RuntimeRefusal
from mallorn_runtime.library_file import LibraryFile, TensorSpec, read_library_file
from mallorn_runtime.session import Session, empty

__all__ = [
    "InputRefused",
    "LibraryFile",
    "LibraryRefused",
    "OptionRefused",
    "RuntimeRefusal",
    "Session",
    "TensorSpec",
    "cmake_folder",
    "empty",
    "read_library_file",
]
__version__: Final = "0.1.0"


def cmake_folder() -> Path:
    """Return the folder of the CMake package `mallorn_runtime`, for programs in C++."""
    return Path(__file__).parent / "cmake"
