"""Load `tvm_ffi` and TVM's runtime library, once per process, and nothing else of TVM."""

import ctypes
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import cast

LIBRARY = "libtvm_runtime.so"
BUNDLED = Path(__file__).parent / "lib" / LIBRARY
# A function that only this library registers.
REGISTERED = "vm.builtin.alloc_storage"


@contextmanager
def _hide_torch() -> Iterator[None]:
    """Let `import torch` fail, unless it is imported already.

    `tvm_ffi` imports torch where it is installed, which takes seconds, and works without it.
    """
    if "torch" in sys.modules:
        yield
        return
    sys.modules["torch"] = cast(ModuleType, None)
    try:
        yield
    finally:
        del sys.modules["torch"]


def runtime_library() -> Path:
    """Return the path of TVM's runtime library.

    An installed apache-tvm's has precedence: a process cannot load two, and may import `tvm` later.
    """
    spec = find_spec("tvm")
    for folder in (spec and spec.submodule_search_locations) or ():
        if (installed := Path(folder) / "lib" / LIBRARY).is_file():
            return installed
    return BUNDLED


with _hide_torch():
    import tvm_ffi

if tvm_ffi.get_global_func(REGISTERED, allow_missing=True) is None:
    ctypes.CDLL(str(runtime_library()), ctypes.RTLD_GLOBAL)
