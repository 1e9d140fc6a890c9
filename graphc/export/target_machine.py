"""Read the schedules' target, and check whether this machine can run code for it."""

import platform
import re
from pathlib import Path
from typing import Any

import tvm
from tvm.target.codegen import llvm_get_cpu_features, llvm_get_system_triple, llvm_is_valid_cpu

from graphc.export import export_checks

# CPU features that TVM's vector code uses, as LLVM names them.
VECTORS = (
    "sse4.2", "avx", "avx2", "fma", "f16c",
    "avx512f", "avx512bw", "avx512dq", "avx512vl", "avx512vnni", "avx512bf16", "avx512fp16",
    "amx-tile", "amx-int8", "amx-bf16",
)  # fmt: skip
PROCESSORS = Path("/proc/cpuinfo")


def read_target(attrs: dict[str, Any]) -> Any:
    """Return the TVM target; a tag overrides other attributes. Raises Refused."""
    mcpu = attrs.get("mcpu")
    if mcpu and not llvm_is_valid_cpu(mcpu, attrs.get("mtriple", llvm_get_system_triple())):
        raise export_checks.Refused(
            f"the schedules are for {mcpu}, and this machine is of another kind ({platform.machine()})",
            "compile on a machine like the one it was tuned for",
        )
    return tvm.target.Target(attrs.get("tag", attrs))


def device_of(target: Any) -> Any:
    """Return the first device of the target's kind."""
    return tvm.runtime.device(target.get_target_device_type())


def threads() -> int:
    """Return the number of threads on which TVM runs a kernel."""
    return int(tvm.runtime.num_threads())


def why_it_cannot_run(target: Any) -> str:
    """Return why this machine cannot run code for the target; empty if it can."""
    if target.kind.name != "llvm":
        return "" if device_of(target).exist else f"this machine has no device for {target.kind.name}"
    triple, mcpu = (str(target.attrs.get(name, "")) for name in ("mtriple", "mcpu"))
    if triple and triple.partition("-")[0] != llvm_get_system_triple().partition("-")[0]:
        return f"the schedules are for {triple}, and this machine is {platform.machine()}"
    listed = PROCESSORS.read_text() if PROCESSORS.is_file() else ""
    flags = next((line.partition(":")[2] for line in listed.splitlines() if line.startswith("flags")), "")
    here = set(map(_plain, flags.split()))
    needed = {str(feature) for feature in llvm_get_cpu_features(target)}
    lacking = [name for name in VECTORS if name in needed and here and _plain(name) not in here]
    return f"the schedules are for {mcpu}; this processor lacks {', '.join(lacking)}" if lacking else ""


def _plain(feature: str) -> str:
    return re.sub("[-._]", "", feature)
