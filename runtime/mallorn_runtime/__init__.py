"""Call models that Mallorn compiled: `Session("model.so").run({"x": x})`."""

from typing import Final

from mallorn_runtime.library_file import (
    InputRefused,
    LibraryFile,
    LibraryRefused,
    OptionRefused,
    RuntimeRefusal,
    TensorInfo,
    read_library_file,
)
from mallorn_runtime.loaded_library import cmake_folder
from mallorn_runtime.session import Session
from mallorn_runtime.tensors import empty

__all__ = [
    "InputRefused",
    "LibraryFile",
    "LibraryRefused",
    "OptionRefused",
    "RuntimeRefusal",
    "Session",
    "TensorInfo",
    "cmake_folder",
    "empty",
    "read_library_file",
]
__version__: Final = "0.1.0"
