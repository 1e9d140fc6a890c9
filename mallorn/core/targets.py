"""Targets in canonical form: equal targets have equal JSON texts and equal short keys."""

import hashlib
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cached_property
from typing import Any, Final, TypedDict, cast

from mallorn.core.compute_capability import (
    GPUS,
    REGISTERS_PER_BLOCK,
    SHARED_PER_BLOCK,
    THREADS_PER_BLOCK,
    WARP_SIZE,
    capability,
    is_obsolete,
)
from mallorn.core.errors import InvalidTarget
from mallorn.core.registry import VIRTUAL_DEVICES
from mallorn.core.storable_json import TOLD, check_storable, read_json

LOCAL = "local"
NATIVE: Final = "native"  # the toolchain for the instruction set of the host that builds
#: Names of instruction sets in LLVM's triples that mean the same as another.
SAME_SETS: Final = {"arm64": "aarch64", "amd64": "x86_64"}
#: Rounds that are open for each GPU: while one's candidates run, others propose and build theirs.
ROUNDS_PER_GPU: Final = 3
CUDA: Final = "cuda"  # like `local`, resolved on a machine with such a device
TargetAttrs = TypedDict(
    "TargetAttrs",
    {
        "kind": str,
        "tag": str,
        "keys": list[str],
        "device": str,
        "host": object,
        "mcpu": str,
        "mtriple": str,
        "mattr": list[str],
        "mabi": str,
        "num-cores": int,
        "arch": str,
        "libs": list[str],
        "max_threads_per_block": int,
        "max_num_threads": int,
        "max_shared_memory_per_block": int,
        "thread_warp_size": int,
        "registers_per_block": int,
        "l2_cache_size_bytes": int,
        "vector-width": int,
        "cl-opt": int,
        "opt-level": int,
    },
    total=False,
)
KNOWN_KEYS = frozenset(TargetAttrs.__annotations__)
CPU_KINDS = frozenset({"llvm", "c"})
KINDS = CPU_KINDS | {CUDA, "rocm", "vulkan", "metal", "opencl"}
EXAMPLE = '{"kind": "llvm", "mcpu": "haswell", "num-cores": 4}'
CUDA_EXAMPLE: Final = '{"kind": "cuda", "arch": "sm_80"}'
EXAMPLES = f"local   or   '{EXAMPLE}'   or   nvidia/nvidia-h100"
_USE = f"--target {EXAMPLES}"
LONGEST: Final = 2000  # characters: databases cannot index longer texts
_NUMBER: Final = re.compile(r"[0-9]{1,18}")
_Fits = tuple[str, Callable[[object], bool]]
_TYPES: Final[dict[Any, _Fits]] = {
    str: ("text", lambda value: isinstance(value, str)),
    int: ("whole number", lambda value: type(value) is int),
    list[str]: (
        "list of texts",
        lambda value: isinstance(value, list) and all(isinstance(each, str) for each in value),
    ),
}
_ANYTHING: Final[_Fits] = ("value", lambda _: True)
_LISTS: Final = frozenset({"keys", "libs", "mattr"})
_NVIDIA: Final = "nvidia/"
# Limits of a kernel on every GPU that nvcc 13 compiles for.
_GPU_LIMITS: Final[TargetAttrs] = {
    "max_threads_per_block": THREADS_PER_BLOCK,
    "max_num_threads": THREADS_PER_BLOCK,
    "max_shared_memory_per_block": SHARED_PER_BLOCK,
    "registers_per_block": REGISTERS_PER_BLOCK,
    "thread_warp_size": WARP_SIZE,
}


@dataclass(frozen=True)
class Target:
    """A target in canonical form: keys sorted, no white space.

    A CPU target has `num-cores`. A CUDA target has an architecture, block limits and no tag.
    """

    text: str

    @cached_property
    def attrs(self) -> TargetAttrs:
        return cast(TargetAttrs, json.loads(self.text))

    @cached_property
    def key(self) -> str:
        """Short hash that identifies the target in tracker keys, queues and directories."""
        return hashlib.sha256(self.text.encode()).hexdigest()[:12]

    @property
    def kind(self) -> str:
        return self.attrs["kind"]

    @property
    def is_cpu(self) -> bool:
        return self.kind in CPU_KINDS

    @property
    def is_gpu(self) -> bool:
        """Return whether a GPU measures, and neither a CPU nor a virtual device."""
        return not self.is_cpu and not self.virtual_device

    @property
    def num_cores(self) -> int:
        return self.attrs.get("num-cores", 1)

    @property
    def toolchain(self) -> str:
        """Tools that build for it: `cuda`, an instruction set, or the builder's, NATIVE."""
        if self.is_gpu:
            return self.kind
        instruction_set = self.attrs.get("mtriple", "").partition("-")[0]
        return SAME_SETS.get(instruction_set, instruction_set) or NATIVE

    @property
    def virtual_device(self) -> str:
        """Name of the measurer that replaces the target's device; empty if hardware measures."""
        device = self.attrs.get("device", "")
        return device if device in VIRTUAL_DEVICES else ""

    def __str__(self) -> str:
        return self.text


def parse_target(value: str | Mapping[str, object]) -> Target:
    """Read a target given as JSON (text or dict), a TVM tag or the old `llvm -mcpu=...`.

    A CUDA target is completed from its tag and architecture, but given attributes win.
    Raises InvalidTarget for an unknown key, a wrong value, or no `num-cores` or `arch`.
    """
    attrs = _attributes(value)
    try:
        check_storable(attrs)
    except ValueError as error:
        raise InvalidTarget(f"the target cannot be stored: {error}", hint=_USE) from None
    unknown = sorted(set(attrs) - KNOWN_KEYS)
    if unknown:
        keys = ", ".join(sorted(KNOWN_KEYS))
        raise InvalidTarget(f"unknown target key {unknown[0][:TOLD]!r}", hint=f"known keys: {keys}")
    kind: object = attrs.get("kind")
    if not isinstance(kind, str):
        raise InvalidTarget("the target lacks `kind`", hint=_USE)
    if kind not in KINDS:
        message = f"unknown target kind {kind[:TOLD]!r}; known: {', '.join(sorted(KINDS))}"
        raise InvalidTarget(message, hint=_USE)
    cores: object = attrs.get("num-cores")
    if kind in CPU_KINDS and not (isinstance(cores, int) and cores is not True and cores > 0):
        raise InvalidTarget(
            "a CPU target needs num-cores, a whole number above 0",
            hint=f"--target '{json.dumps({**attrs, 'num-cores': 4})}'   (for four cores)",
        )
    for name, value_given in attrs.items():
        type_name, fits = _TYPES.get(TargetAttrs.__annotations__[name], _ANYTHING)
        if not fits(value_given):
            words = str(value_given)[:TOLD]
            raise InvalidTarget(f"the target's {name} is not a {type_name}: {words!r}", hint=_USE)
    if kind == CUDA:
        given_names = attrs.keys()
        attrs = {**_GPU_LIMITS, **_attributes_of_tag(attrs.get("tag")), **attrs}
        attrs.pop("tag", None)
        if "arch" not in attrs:
            raise InvalidTarget(
                "a CUDA target needs an architecture; only a machine with a GPU knows `cuda` as a target",
                hint=f"--target '{CUDA_EXAMPLE}'   or   mallorn check --target cuda",
            )
        if is_obsolete(attrs["arch"]) or not given_names >= _GPU_LIMITS.keys():
            capability(attrs["arch"])
    text = json.dumps(attrs, sort_keys=True, separators=(",", ":"))
    if len(text) > LONGEST:
        raise InvalidTarget(f"the target has {len(text)} characters, more than {LONGEST}", hint=_USE)
    return Target(text)


def _attributes(value: str | Mapping[str, object]) -> TargetAttrs:
    if not isinstance(value, str):
        is_tagged = "kind" not in value and str(value.get("tag")).startswith(_NVIDIA)
        return cast(TargetAttrs, {"kind": CUDA, **value} if is_tagged else value)
    text = value.strip()
    if text.startswith("{"):
        try:
            return _attributes(dict(read_json(text)))
        except ValueError as error:
            raise InvalidTarget(f"the target is not valid JSON: {error}", hint=_USE) from None
    if text.startswith(_NVIDIA):
        return {"kind": CUDA, "tag": text}
    kind, *flags = text.split() or [""]
    attrs: dict[str, str | int | list[str]] = {"kind": kind}
    for flag in flags:
        name, equals, value = flag.lstrip("-").partition("=")
        if not equals or not flag.startswith("-"):
            raise InvalidTarget(f"cannot read {flag[:TOLD]!r} in target {text[:TOLD]!r}", hint=_USE)
        attrs[name] = int(value) if _NUMBER.fullmatch(value) else value
        if name in _LISTS:
            attrs[name] = value.split(",")
    if kind not in KINDS:
        raise InvalidTarget(f"unknown target {text[:TOLD]!r}", hint=_USE)
    return cast(TargetAttrs, attrs)


def _attributes_of_tag(tag: str | None) -> TargetAttrs:
    """Return the architecture of the GPU that a TVM tag names. Raises InvalidTarget.

    TVM's L2 size is omitted, so that a GPU has the same target whichever way it is named.
    """
    if tag is None:
        return {}
    archs = {name: arch for arch, names in GPUS["names_by_arch"].items() for name in names.split()}
    name = tag.removeprefix(_NVIDIA)
    if name not in archs:
        usable = [gpu for gpu, arch in archs.items() if not is_obsolete(arch)]
        similar = [gpu for gpu in usable if name in gpu] or get_close_matches(name[:TOLD], usable)
        examples = ", ".join(_NVIDIA + gpu for gpu in similar[:3])
        raise InvalidTarget(
            f"TVM has no GPU tag {tag[:TOLD]!r}" + (f"; it has {examples}" if similar else ""),
            hint=f"--target '{CUDA_EXAMPLE}'   (with the architecture of your GPU)",
        )
    return {"arch": archs[name]}
