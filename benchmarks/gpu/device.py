"""TVM's runtime for the device of a part: a GPU, or in a rehearsal this machine's CPU."""

import os
from typing import Any, Final

CUDA: Final = "cuda"
CPU: Final = "cpu"


def load_runtime(kind: str) -> None:
    """Load TVM's runtime without its compiler; this creates no context on a GPU."""
    os.environ["TVM_USE_RUNTIME_LIB"] = "1"
    import tvm  # noqa: F401 - the import loads the library

    if kind == CUDA:
        from mallorn.kinds.cuda.device.nvidia_driver import load_cuda_runtime

        load_cuda_runtime()


def gpu_meter() -> Any:
    """Return a meter of the first visible GPU. Call this before a context is created."""
    from mallorn.kinds.cuda.device.gpu_meter import GpuMeter
    from mallorn.kinds.cuda.device.nvidia_driver import visible_gpus

    return GpuMeter(visible_gpus()[0].uuid)


def device_of(kind: str) -> Any:
    """Return TVM's first device of a kind. Raises RuntimeError if there is none."""
    import tvm

    device = tvm.runtime.device(kind, 0)
    if not device.exist:
        raise RuntimeError(f"TVM's runtime finds no device {kind}")
    return device
