"""Run a model in onnxruntime, and what Mallorn has compiled of it in Mallorn's code.

``session = onnxruntime.InferenceSession("model.onnx", mallorn.session_options("tuned"))``
"""

import os
from hashlib import sha256
from pathlib import Path
from threading import Lock
from typing import Any, Final

from mallorn_runtime.library_file import LibraryRefused, OptionRefused
from mallorn_runtime.loaded_library import MOST_THREADS, PACKAGE

OLDEST: Final = (1, 23)  # with interfaces for plug-ins that compile nodes
try:
    import onnxruntime
except ModuleNotFoundError:
    raise ModuleNotFoundError(
        "mallorn_runtime.onnxruntime needs onnxruntime: pip install 'onnxruntime>=1.23'", name="onnxruntime"
    ) from None
if tuple(map(int, onnxruntime.__version__.split(".")[:2])) < OLDEST:
    raise ImportError(
        f"mallorn_runtime.onnxruntime needs onnxruntime 1.23 or newer, and {onnxruntime.__version__} is "
        "installed: pip install -U onnxruntime"
    )

LIBRARY: Final = PACKAGE / "lib" / "libmallorn_onnxruntime.so"
PROVIDER: Final = "MallornExecutionProvider"
ENTRY: Final = f"ep.{PROVIDER.lower()}."  # how onnxruntime names a provider's options
LIBRARIES: Final = ("model.so", "regions/*.so", "*/model.so", "*/regions/*.so")
_lock: Final = Lock()


class _Options(onnxruntime.SessionOptions):  # type: ignore[misc]
    """Options whose number of threads the provider is told, too: onnxruntime does not show it."""

    @property
    def intra_op_num_threads(self) -> int:
        return int(super().intra_op_num_threads)

    @intra_op_num_threads.setter
    def intra_op_num_threads(self, threads: int) -> None:
        onnxruntime.SessionOptions.intra_op_num_threads.__set__(self, threads)
        self.add_session_config_entry(f"{ENTRY}threads", str(min(threads, MOST_THREADS)))


def session_options(
    directory: str | os.PathLike[str],
    *,
    model: str | os.PathLike[str] | bytes | None = None,
    options: Any = None,
) -> Any:
    """Return options for a session whose model runs in the directory's libraries, as far as they fit.

    `directory` is what `mallorn tune --out` wrote, or a folder with several of these. onnxruntime
    computes what no library does, and what it computed faster where the job ran; a warning in its
    log says so. `model` is the ONNX file or its bytes, and needed only if the session is created
    from bytes. `options` are an `onnxruntime.SessionOptions` to which the provider is added, with
    its number of threads set before; otherwise new ones are made. Raises OptionRefused if the
    directory has no library, LibraryRefused if this installation has no provider.
    """
    folder = Path(directory).absolute()
    if not any(path for pattern in LIBRARIES for path in folder.glob(pattern)):
        raise OptionRefused(
            f"{folder} has neither model.so nor regions/*.so, nor a folder that has: "
            f"mallorn tune MODEL --out {folder}"
        )
    entries = {"directory": str(folder)}
    if isinstance(model, bytes):
        entries["digest"] = sha256(model).hexdigest()
    elif model is not None:
        entries["model"] = str(Path(model).absolute())
    result = _Options() if options is None else options
    if threads := result.intra_op_num_threads:
        entries["threads"] = str(min(threads, MOST_THREADS))
    result.add_provider_for_devices([_find_device()], entries)
    return result


def _find_device() -> Any:
    """Register the provider if need be; return its device. Raises LibraryRefused."""
    with _lock:
        for _ in range(2):
            for device in onnxruntime.get_ep_devices():
                if device.ep_name == PROVIDER:
                    return device
            if not LIBRARY.is_file():
                raise LibraryRefused(
                    f"{LIBRARY} is missing: this mallorn-runtime was built without a C++ compiler; "
                    "install g++ and build the wheel again (make runtime)"
                )
            onnxruntime.register_execution_provider_library("mallorn", str(LIBRARY))
    raise LibraryRefused(f"onnxruntime {onnxruntime.__version__} names no CPU for the provider {PROVIDER}")
