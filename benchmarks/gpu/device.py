"""TVM's runtime for the device of a part: a GPU, or this machine's processor in a rehearsal."""

import os
from typing import Any, Final

CUDA: Final = "cuda"
CPU: Final = "cpu"


def load_runtime(kind: str) -> None:
    """Load TVM's runtime without its compiler; no context is made on a GPU yet."""
    os.environ["TVM_USE_RUNTIME_LIB"] = "1"
    import tvm  # noqa: F401 - it loads its library

    if kind == CUDA:
        from workers.device.cuda_driver import load_cuda_runtime

        load_cuda_runtime()


def gpu_meter() -> Any:
    """Return the product's meter of the first visible GPU; it must be made before there is a context."""
    from workers.device.gpu_meter import GpuMeter
    from workers.device.nvidia_driver import visible_gpus

    return GpuMeter(visible_gpus()[0].uuid)


def device_of(kind: str) -> Any:
    """Return TVM's first device of a kind, whose runtime is loaded. Raises RuntimeError if there is none."""
    import tvm

    device = tvm.runtime.device(kind, 0)
    if not device.exist:
        raise RuntimeError(f"TVM's runtime finds no device {kind}")
    return device
