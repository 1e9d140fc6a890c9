"""Paths of the host that every process in a sandbox may use: system, this Python, and our code."""

import os
import re
import sys
from collections.abc import Iterator
from glob import glob
from pathlib import Path
from typing import Final

from mallorn.graphc.export.cuda_toolkit import cuda_folders
from mallorn.workers.sandbox.landlock import READ, RUN, TRUNCATE, USE, WRITE_FILE

_PROGRAMS: Final = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/opt")
_FACTS: Final = ("/proc", "/sys")
# Not all of /etc: it holds keys and passwords, which root can read.
_ETC: Final = (
    "ld.so.cache", "ld.so.preload", "ld.so.conf", "ld.so.conf.d", "alternatives", "localtime", "passwd",
    "group", "nsswitch.conf", "hosts", "host.conf", "resolv.conf", "gai.conf", "services", "protocols",
    "mime.types", "os-release", "OpenCL", "vulkan",
)  # fmt: skip
# Wheels keep libraries that their modules link to in folders such as `numpy.libs`.
_MODULES: Final = (".py", ".so", ".zip", ".dist-info", ".egg-info", ".libs")
_DEVICES: Final = ("null", "zero", "full", "random", "urandom")
_NVIDIA_NODES: Final = "nvidia[0-9]*"  # one for each GPU; the others are of all GPUs
_NVIDIA: Final = ("nvidiactl", "nvidia-uvm", _NVIDIA_NODES)
_NVIDIA_FACTS: Final = "/proc/driver/nvidia/gpus"
_RENDERERS: Final = ("dri/renderD*",)
#: By kind of target: what its driver opens in /dev. CUDA's were found by trial, and all are needed.
_ACCELERATORS: Final = {
    "cuda": _NVIDIA,
    "rocm": ("kfd", *_RENDERERS),
    "opencl": (*_NVIDIA, "kfd", *_RENDERERS),
    "vulkan": (*_NVIDIA, "nvidia-modeset", *_RENDERERS),
}


def system_paths() -> Iterator[tuple[Path, int]]:
    """Yield the paths of the system, this Python and our code, with their Landlock rights."""
    programs = *_PROGRAMS, sys.prefix, sys.base_prefix, sys.exec_prefix
    yield from ((Path(path), RUN) for path in programs)
    yield from ((folder, RUN) for folder in cuda_folders())
    yield from ((Path(path), READ) for path in _FACTS)
    yield from ((Path("/etc", name), READ) for name in _ETC)
    yield from ((Path("/dev", name), USE) for name in _DEVICES)
    prefixes = sys.prefix, sys.base_prefix, "/usr"
    for folder in map(Path, sys.path):
        if any(folder.is_relative_to(prefix) for prefix in prefixes):
            continue
        try:
            entries = list(folder.iterdir()) if folder.is_dir() else [folder]
        except OSError:
            continue
        if any(entry.suffix == ".dist-info" for entry in entries):
            # pip's folder holds nothing but packages, and reading a package's version lists it.
            yield folder, READ
            continue
        # Only the packages and modules of the folder, not what else a checkout holds.
        for entry in entries:
            if entry.suffix in _MODULES or (
                not entry.name.startswith(".") and next(entry.glob("*.py"), None) is not None
            ):
                yield entry, READ


def accelerator_paths(kind: str, gpu_uuid: str = "") -> Iterator[tuple[str, int]]:
    """Yield the paths, with rights, by which a session uses its target's GPU, if any. Other
    GPUs' nodes are left out if NVIDIA's driver names the node of `gpu_uuid`."""
    own_node = _nvidia_node(gpu_uuid)
    for pattern in _ACCELERATORS.get(kind, ()):
        is_node = own_node is not None and pattern == _NVIDIA_NODES
        yield from ((path, USE) for path in glob(f"/dev/{own_node if is_node else pattern}"))
    if kind == "cuda":  # CUDA's driver names its threads there
        yield f"/proc/{os.getpid()}/task", WRITE_FILE | TRUNCATE


def _nvidia_node(uuid: str) -> str | None:
    """Return the name of a GPU's node in /dev; None if the driver does not name it."""
    for file in glob(f"{_NVIDIA_FACTS}/*/information"):
        text = Path(file).read_text()
        minor = re.search(r"^Device Minor:\s*(\d+)", text, re.MULTILINE)
        if uuid and uuid in text and minor:
            return f"nvidia{minor[1]}"
    return None
