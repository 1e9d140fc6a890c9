"""Checks whether this host can execute code compiled for a target, with TVM in a child process."""

import json
import os
from collections.abc import Collection
from difflib import get_close_matches
from typing import Final

from mallorn.core.compute_capability import arch_of_gpu, runs_on
from mallorn.core.errors import InvalidTarget
from mallorn.core.targets import CUDA, LOCAL, Target, parse_target
from mallorn.workers.device.detect_host import (
    PRODUCTS,
    available_cores,
    cpu_info,
    detect_target,
    run_with_tvm,
    usable_flags,
)
from mallorn.workers.device.nvidia_driver import first_gpu

MACHINES: Final = {"amd64": "x86_64", "arm64": "aarch64"}
# LLVM feature that kernels may use -> the kernel's flag. Other features are for tuning or systems.
X86: Final = {
    "sse": "sse", "sse2": "sse2", "sse3": "pni", "ssse3": "ssse3", "sse4.1": "sse4_1", "sse4.2": "sse4_2",
    "sse4a": "sse4a", "avx": "avx", "avx2": "avx2", "fma": "fma", "fma4": "fma4", "f16c": "f16c",
    "bmi": "bmi1", "bmi2": "bmi2", "lzcnt": "abm", "popcnt": "popcnt", "movbe": "movbe", "adx": "adx",
    "cmov": "cmov", "xop": "xop", "cx16": "cx16",
    "aes": "aes", "vaes": "vaes", "pclmul": "pclmulqdq", "gfni": "gfni",
    "vpclmulqdq": "vpclmulqdq", "sha": "sha_ni", "avxvnni": "avx_vnni", "avxvnniint8": "avx_vnni_int8",
    "avxifma": "avx_ifma", "avxneconvert": "avx_ne_convert", "avx512f": "avx512f", "avx512bw": "avx512bw",
    "avx512cd": "avx512cd", "avx512dq": "avx512dq", "avx512vl": "avx512vl", "avx512vnni": "avx512_vnni",
    "avx512fp16": "avx512_fp16", "avx512ifma": "avx512ifma",
    "avx512vbmi": "avx512vbmi", "avx512vbmi2": "avx512_vbmi2", "avx512bitalg": "avx512_bitalg",
    "avx512vpopcntdq": "avx512_vpopcntdq", "avx512vp2intersect": "avx512_vp2intersect",
    "amx-fp16": "amx_fp16", **PRODUCTS,
}  # fmt: skip
ALIKE: Final = 0.75  # least similarity of the names that are suggested for a misspelt one
ARM: Final = {
    "neon": "asimd", "fullfp16": "asimdhp", "dotprod": "asimddp", "lse": "atomics", "bf16": "bf16",
    "i8mm": "i8mm", "sve": "sve", "sve2": "sve2", "sme": "sme",
}  # fmt: skip
FEATURES: Final = {"x86_64": ("flags", X86), "aarch64": ("Features", ARM)}
LLVM_PROGRAM: Final = """
import json, sys
from tvm.target import Target, codegen
attrs = json.loads(sys.argv[1])
triple = attrs.get("mtriple") or codegen.llvm_get_system_triple()
cpu = attrs.get("mcpu", "")
known = not cpu or cpu == "generic" or codegen.llvm_is_valid_cpu(cpu, triple)
cpus = [] if known else [str(name) for name in codegen.llvm_get_cpu_archlist(Target({"kind": "llvm"}))]
features = sorted(codegen.llvm_get_cpu_features(Target(attrs))) if known else []
print(json.dumps({"cpus": cpus, "known": bool(known), "features": features}))
"""
DEVICE_PROGRAM: Final = """
import json, sys, tvm
attrs = json.loads(sys.argv[1])
if "tag" in attrs:
    del attrs["kind"]  # beside a kind, TVM ignores the tag
device = tvm.device(tvm.target.Target(attrs).kind.name, 0)
print(json.dumps({"there": bool(device.exist)}))
"""


def check_executable(target: Target) -> None:
    """Raise InvalidTarget, with the reason, if this host cannot execute code for the target."""
    if reason := find_unsupported_reason(target):
        raise InvalidTarget(
            f"this machine cannot run {target}: {reason}", hint="mallorn device --target local"
        )


def resolve_target(text: str) -> Target:
    """Return the target that `text` means on this host: `local` is its CPU, `cuda` its
    first GPU. Raises InvalidTarget if `text` is no target or the host has no GPU."""
    if text == LOCAL:
        return detect_target()
    if text != CUDA:
        return parse_target(text)
    return parse_target({"kind": CUDA, "arch": arch_of_gpu(first_gpu().capability)})


def find_unsupported_reason(target: Target) -> str:
    """Return why this host cannot execute code compiled for the target; empty if it can."""
    if target.kind == CUDA:
        try:
            arch = parse_target(target.text).attrs["arch"]  # earlier versions stored tags
            capability = first_gpu().capability
        except InvalidTarget as error:
            return error.message
        return "" if runs_on(arch, capability) else f"the target is for {arch}, its GPU is sm_{capability}"
    if not target.is_cpu:
        answer = run_with_tvm(DEVICE_PROGRAM, target.text)
        if answer.returncode != 0:
            error_lines = answer.stderr.strip().splitlines()
            return f"TVM does not know the target here: {error_lines[-1] if error_lines else 'it died'}"
        exists = json.loads(answer.stdout.splitlines()[-1])["there"]
        return "" if exists else f"it has no {target.kind} device"

    cores = available_cores()
    if target.num_cores > cores:
        return f"the target has {target.num_cores} cores, but this machine has {cores}"
    target_machine, host_machine = target_architecture(target), os.uname().machine
    if target_machine and target_machine != host_machine:
        return f"the target is for {target_machine}, but this machine is {host_machine}"
    if target.kind != "llvm":
        return ""

    answer = run_with_tvm(LLVM_PROGRAM, target.text)
    if answer.returncode < 0:
        return "LLVM cannot read the target"
    if answer.returncode > 0:  # only TVM's runtime is installed: the first candidate will show it
        return ""
    llvm = json.loads(answer.stdout.splitlines()[-1])
    if not llvm["known"]:
        cpu = str(target.attrs["mcpu"])
        similar = get_close_matches(cpu, llvm["cpus"], 3, ALIKE)
        return f"LLVM knows no CPU {cpu} here" + (f"; it knows {', '.join(similar)}" if similar else "")
    if unknown := sorted(set(_mattr_features(target, "+")) - set(llvm["features"])):
        return f"LLVM knows no feature {unknown[0]}"
    host_flags = usable_flags(cpu_info(), FEATURES[host_machine][0]) if host_machine in FEATURES else set()
    required = needed_flags(target, llvm["features"], host_machine)
    lacking = sorted(name for name, flag in required.items() if flag not in host_flags)
    return f"its CPU lacks {', '.join(lacking[:4])}" if lacking else ""


def target_architecture(target: Target) -> str:
    """Return a CPU target's architecture as `uname -m` spells it; empty if it names none."""
    name = str(target.attrs.get("mtriple", "")).partition("-")[0]
    return MACHINES.get(name, name)


def needed_flags(target: Target, features: Collection[str], machine: str) -> dict[str, str]:
    """Return the CPU flags that code for `target` may need; `features` are LLVM's for the
    target's CPU. The keys are LLVM's names, the values those in /proc/cpuinfo."""
    _, words = FEATURES.get(machine, ("", {}))
    required = set(features) - set(_mattr_features(target, "-"))
    return {name: words[name] for name in required & words.keys()}


def _mattr_features(target: Target, sign: str) -> list[str]:
    """Return the CPU features that the target's `mattr` switches on (`+`) or off (`-`)."""
    mattr = target.attrs.get("mattr", [])
    names = mattr.split(",") if isinstance(mattr, str) else mattr
    return [name[1:] for name in names if name.startswith(sign)]
