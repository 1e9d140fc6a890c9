"""Checks whether this host can execute code compiled for a target, with TVM in a child process."""

import json
import os
from collections.abc import Collection, Mapping
from difflib import get_close_matches
from typing import Final

from mallorn.core.errors import InvalidTarget, MissingPackage
from mallorn.core.targets import LOCAL, Target, kind_of_word, parse_target
from mallorn.graphc.export.cpu_features import ARCHITECTURES, FIELDS, FLAGS
from mallorn.workers.device import detect_host
from mallorn.workers.device.cpu_speed_limits import cpu_info
from mallorn.workers.device.device_kind import DeviceKind, device_kind

ALIKE: Final = 0.75  # least similarity of the names that are suggested for a misspelt one
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


def check_executable(target: Target) -> None:
    """Raise InvalidTarget, with the reason, if this host cannot run code for the target."""
    if reason := find_unsupported_reason(target):
        raise InvalidTarget(
            f"this machine cannot run {target}: {reason}", hint="mallorn device --target local"
        )


def resolve_target(text: str) -> Target:
    """Return the target that `text` means on this host: `local` is its CPU, the name of a kind
    of accelerator its first one. Raises InvalidTarget for other texts, or without one."""
    if text == LOCAL:
        return detect_host.detect_target()
    kind = kind_of_word(text)
    return parse_target(text) if kind is None else kind.part(DeviceKind).own_target()


def find_unsupported_reason(target: Target, required: Mapping[str, str] | None = None) -> str:
    """Return why this host cannot execute code compiled for the target; empty if it can.
    `required` holds the target's `needed_flags`; if it is None, TVM's LLVM lists them."""
    try:
        if not target.runs_on_cores:
            return device_kind(target).why_unsupported(target)
    except MissingPackage as error:
        return error.message
    cores = detect_host.available_cores()
    if target.num_cores > cores:
        return f"the target has {target.num_cores} cores, but this machine has {cores}"
    target_machine, host_machine = target_architecture(target), os.uname().machine
    if target_machine and target_machine != host_machine:
        return f"the target is for {target_machine}, but this machine is {host_machine}"
    if target.kind != "llvm":
        return ""

    if required is None:
        answer = detect_host.run_with_tvm(LLVM_PROGRAM, target.text)
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
        required = needed_flags(target, llvm["features"], host_machine)
    field = FIELDS.get(host_machine)
    host_flags = set() if field is None else detect_host.usable_flags(cpu_info(), field)
    lacking = sorted(name for name, flag in required.items() if flag not in host_flags)
    return f"its CPU lacks {', '.join(lacking[:4])}" if lacking else ""


def target_architecture(target: Target) -> str:
    """Return a CPU target's architecture as `uname -m` spells it; empty if unnamed."""
    name = str(target.attrs.get("mtriple", "")).partition("-")[0]
    return ARCHITECTURES.get(name, name)


def needed_flags(target: Target, features: Collection[str], machine: str) -> dict[str, str]:
    """Return the CPU flags that code for `target` may need; `features` are LLVM's for the
    target's CPU. The keys are LLVM's names, the values those in /proc/cpuinfo."""
    flags = FLAGS.get(machine, {})
    required = set(features) - set(_mattr_features(target, "-"))
    return {name: flags[name] for name in required & flags.keys()}


def _mattr_features(target: Target, sign: str) -> list[str]:
    """Return the CPU features that the target's `mattr` switches on (`+`) or off (`-`)."""
    mattr = target.attrs.get("mattr", [])
    names = mattr.split(",") if isinstance(mattr, str) else mattr
    return [name[1:] for name in names if name.startswith(sign)]
