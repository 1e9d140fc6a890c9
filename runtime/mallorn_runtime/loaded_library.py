"""TVM's runtime, and the libraries that this process has loaded: each file once."""

import ctypes
import os
import sys
from collections.abc import Callable, Iterable
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Lock
from types import ModuleType
from typing import Any, Final, cast
from weakref import WeakValueDictionary

from mallorn_runtime.library_file import LibraryFile, LibraryRefused, OptionRefused

PACKAGE: Final = Path(__file__).parent
LIBRARY: Final = Path("lib", "libtvm_runtime.so")
REGISTERED: Final = "vm.builtin.alloc_storage"  # by this library only
CPU: Final = 1  # DLPack's kDLCPU
# TVM's allocators. The pooled one keeps freed memory by exact size: without bound for a
# decoder whose caches have another size at every step.
NAIVE, POOLED = 1, 2
MOST_THREADS: Final = 256  # as graphc/export/thread_pool.c has it

Main = Callable[..., Any]

# `tvm_ffi` imports torch where it is installed, which takes seconds. It works without.
if "torch" in sys.modules:
    import tvm_ffi as tvm_ffi
else:
    sys.modules["torch"] = cast(ModuleType, None)
    try:
        import tvm_ffi as tvm_ffi
    finally:
        del sys.modules["torch"]


def runtime_library() -> Path:
    """Return the path of TVM's runtime library. An installed apache-tvm's has precedence: a
    process cannot load two, and may import `tvm` later."""
    spec = find_spec("tvm")
    for folder in (spec and spec.submodule_search_locations) or ():
        if (path := folder / LIBRARY).is_file():
            return path
    return PACKAGE / LIBRARY


if tvm_ffi.get_global_func(REGISTERED, allow_missing=True) is None:
    ctypes.CDLL(str(runtime_library()), ctypes.RTLD_GLOBAL)


def cmake_folder() -> Path:
    """Return the folder of the CMake package `mallorn_runtime`, for programs in C++."""
    return PACKAGE / "cmake"


class LoadedLibrary:
    """A library in memory. Its virtual machines share the weights and the thread pool."""

    def __init__(self, file: LibraryFile, path: Path) -> None:
        try:
            self._module = tvm_ffi.load_module(path, keep_module_alive=False)
            self._create = self._module["vm_load_executable"]
        except Exception as error:  # errors of TVM have no base class of their own
            words = str(error).strip().splitlines() or [type(error).__name__]
            raise LibraryRefused(f"{file.path} cannot be loaded: {words[-1]}") from None
        self.file = file
        self._set_threads = getattr(ctypes.CDLL(str(path)), "mallorn_set_threads", None)
        self._threads: tuple[int, frozenset[int]] | None = None  # None: no session set any

    def create_main(self) -> Main:
        """Return the library's function, in a virtual machine that runs one call at a time."""
        machine = self._create()
        machine["vm_initialization"](CPU, 0, NAIVE if self.file.ranges else POOLED)
        main: Main = machine["main"]
        return main

    def set_threads(self, threads: int | None, affinity: Iterable[int] | None) -> None:
        """Set the number of threads and the cores of the pool. Raises OptionRefused."""
        cores, own_cores = frozenset(affinity or ()), os.sched_getaffinity(0)
        if threads is not None and not 1 <= threads <= MOST_THREADS:
            raise OptionRefused(f"threads is {threads}, and must be 1 to {MOST_THREADS}")
        if affinity is not None and not (cores and cores <= own_cores):
            raise OptionRefused(f"affinity is {sorted(cores)}; this process may use {sorted(own_cores)}")
        if self._set_threads is None:
            raise OptionRefused(
                f"{self.file.path} was compiled without a C compiler and has no threads of its "
                "own to set: set TVM_NUM_THREADS before this process starts"
            )
        settings = threads or min(len(cores), self.file.threads or MOST_THREADS), cores
        if self._threads not in (None, settings):
            raise OptionRefused(
                f"another session of this process set other threads for {self.file.path}: "
                "sessions of a library share its threads"
            )
        mask = bytearray(max(cores, default=-1) // 64 * 8 + 8)
        for core in cores:
            mask[core // 8] |= 1 << core % 8
        size = ctypes.c_size_t(len(mask) if cores else 0)
        self._set_threads(settings[0], bytes(mask), size)
        self._threads = settings


_lock: Final = Lock()
_loaded: WeakValueDictionary[tuple[int, ...], LoadedLibrary] = WeakValueDictionary()
_identities: dict[str, tuple[int, ...]] = {}  # of the file that was loaded by this path first


def load(file: LibraryFile) -> LoadedLibrary:
    """Return the loaded library of this file, which all sessions of it share."""
    path = file.path.resolve()
    with _lock:
        if (library := _loaded.get(file.identity)) is not None:
            return library
        if _identities.setdefault(str(path), file.identity) == file.identity:
            library = LoadedLibrary(file, path)
        else:
            # The loader knows libraries by path, and would return the file that was there.
            with TemporaryDirectory(prefix="mallorn-") as folder:
                (link := Path(folder, "model.so")).symlink_to(path)
                library = LoadedLibrary(file, link)
        _loaded[file.identity] = library
        return library
