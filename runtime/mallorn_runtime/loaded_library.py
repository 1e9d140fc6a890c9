"""Libraries that this process has loaded: one for each file, with its weights and threads."""

import ctypes
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Lock
from typing import Any, Final
from weakref import WeakValueDictionary

from mallorn_runtime.errors import LibraryRefused, OptionRefused
from mallorn_runtime.library_file import LibraryFile
from mallorn_runtime.load_tvm import tvm_ffi

CPU: Final = 1  # DLPack's kDLCPU
# TVM's allocators. The pooled one keeps freed memory by exact size: right for one shape, without bound for a
# decoder whose caches have another size at every step.
NAIVE, POOLED = 1, 2
MOST_THREADS: Final = 256  # as graphc/export/thread_pool.c has it
SET_THREADS: Final = "mallorn_set_threads"

Main = Callable[..., Any]


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
        self._allocator = NAIVE if file.ranges else POOLED
        self._set_threads = getattr(ctypes.CDLL(str(path)), SET_THREADS, None)
        self._threads: tuple[int, frozenset[int]] | None = None  # as a session has asked

    def create_main(self) -> Main:
        """Return the library's function, in a virtual machine that runs one call at a time."""
        machine = self._create()
        machine["vm_initialization"](CPU, 0, self._allocator)
        main: Main = machine["main"]
        return main

    def set_threads(self, threads: int | None, affinity: Iterable[int] | None) -> None:
        """Set the number of threads and the cores of the pool. Raises OptionRefused."""
        cores = frozenset(() if affinity is None else affinity)
        allowed = os.sched_getaffinity(0)
        if threads is not None and not 1 <= threads <= MOST_THREADS:
            raise OptionRefused(f"threads is {threads}, and must be 1 to {MOST_THREADS}")
        if affinity is not None and not (cores and cores <= allowed):
            raise OptionRefused(f"affinity is {sorted(cores)}; this process may use {sorted(allowed)}")
        if self._set_threads is None:
            raise OptionRefused(
                f"{self.file.path} has no threads of its own, so they cannot be set: it was compiled without a "
                "C compiler; set TVM_NUM_THREADS before this process starts"
            )
        wanted = threads or min(len(cores), self.file.meta.get("threads") or MOST_THREADS), cores
        if self._threads not in (None, wanted):
            raise OptionRefused(
                f"{self.file.path} has other threads already, which a session of this process set: sessions of "
                "a library share its threads"
            )
        mask = bytearray(max(cores, default=-1) // 64 * 8 + 8)
        for core in cores:
            mask[core // 8] |= 1 << core % 8
        self._set_threads(wanted[0], bytes(mask), ctypes.c_size_t(len(mask) if cores else 0))
        self._threads = wanted


_lock: Final = Lock()
_loaded: WeakValueDictionary[tuple[int, ...], LoadedLibrary] = WeakValueDictionary()  # by identity
_paths: dict[str, tuple[int, ...]] = {}  # identity of the file that was loaded by this path


def load(file: LibraryFile) -> LoadedLibrary:
    """Return the loaded library of this file, which all sessions of it share."""
    with _lock:
        library = _loaded.get(file.identity)
        if library is None:
            library = _loaded[file.identity] = _load(file)
        return library


def _load(file: LibraryFile) -> LoadedLibrary:
    path = file.path.resolve()
    if _paths.setdefault(str(path), file.identity) == file.identity:
        return LoadedLibrary(file, path)
    # The loader knows libraries by their paths, and would return the file that was there before.
    with TemporaryDirectory(prefix="mallorn-") as folder:
        (link := Path(folder, "model.so")).symlink_to(path)
        return LoadedLibrary(file, link)
