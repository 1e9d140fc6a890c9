"""Canonical targets: one JSON text for one meaning, and the key a tracker files its devices under."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TypedDict, cast

from pydantic import JsonValue

from mallorn.core.errors import InvalidTarget

LOCAL = "local"
TargetAttrs = TypedDict(
    "TargetAttrs",
    {
        "kind": str,
        "tag": str,
        "keys": list[str],
        "device": str,
        "host": JsonValue,
        "mcpu": str,
        "mtriple": str,
        "mattr": list[str],
        "mabi": str,
        "num-cores": int,
        "arch": str,
        "libs": list[str],
        "max_threads_per_block": int,
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
KINDS = CPU_KINDS | {"cuda", "rocm", "vulkan", "metal", "opencl"}
EXAMPLE = '{"kind": "llvm", "mcpu": "haswell", "num-cores": 4}'
EXAMPLES = f"local   or   '{EXAMPLE}'   or   nvidia/nvidia-h100"
_USE = f"--target {EXAMPLES}"


@dataclass(frozen=True)
class Target:
    """A target in canonical form: keys sorted, no white space, `num-cores` present on CPUs."""

    text: str

    @cached_property
    def attrs(self) -> TargetAttrs:
        return cast(TargetAttrs, json.loads(self.text))

    @cached_property
    def key(self) -> str:
        """Names the target in tracker keys, queues and directories."""
        return hashlib.sha256(self.text.encode()).hexdigest()[:12]

    @property
    def kind(self) -> str:
        return self.attrs["kind"]

    @property
    def is_cpu(self) -> bool:
        return self.kind in CPU_KINDS

    @property
    def num_cores(self) -> int:
        return self.attrs.get("num-cores", 1)

    def __str__(self) -> str:
        return self.text


def parse_target(value: str | Mapping[str, object]) -> Target:
    """Read a target given as JSON (text or dict), a TVM tag or the old `llvm -mcpu=...` form.

    Raises InvalidTarget naming the unknown key, the missing `num-cores` or the unreadable text.
    """
    attrs = _attributes(value)
    unknown = sorted(set(attrs) - KNOWN_KEYS)
    if unknown:
        raise InvalidTarget(
            f"unknown target key {unknown[0]!r}", hint=f"known keys: {', '.join(sorted(KNOWN_KEYS))}"
        )
    if not isinstance(attrs.get("kind"), str) and "tag" not in attrs:
        raise InvalidTarget("a target needs a kind", hint=_USE)
    if str(attrs.get("kind", "cuda")) not in KINDS:
        raise InvalidTarget(
            f"unknown target kind {attrs['kind']!r}; known: {', '.join(sorted(KINDS))}", hint=_USE
        )
    cores: object = attrs.get("num-cores")
    if attrs.get("kind") in CPU_KINDS and not (isinstance(cores, int) and cores is not True and cores > 0):
        raise InvalidTarget(
            "a CPU target needs num-cores, a whole number above 0",
            hint=f"--target '{json.dumps({**attrs, 'num-cores': 4})}'   (for four cores)",
        )
    return Target(json.dumps(attrs, sort_keys=True, separators=(",", ":")))


def _attributes(value: str | Mapping[str, object]) -> TargetAttrs:
    if not isinstance(value, str):
        return cast(TargetAttrs, value)
    text = value.strip()
    if text.startswith("{"):
        return _json_object(text)
    if text.startswith("nvidia/"):
        return {"kind": "cuda", "tag": text}
    return _legacy_attributes(text)


def _json_object(text: str) -> TargetAttrs:
    try:
        return cast(TargetAttrs, dict(json.loads(text)))
    except ValueError as error:
        raise InvalidTarget(f"the target is not valid JSON: {error}", hint=_USE) from None


def _legacy_attributes(text: str) -> TargetAttrs:
    kind, *flags = text.split() or [""]
    attrs: dict[str, str | int | list[str]] = {"kind": kind}
    for flag in flags:
        name, equals, value = flag.lstrip("-").partition("=")
        if not equals or not flag.startswith("-"):
            raise InvalidTarget(f"cannot read {flag!r} in target {text!r}", hint=_USE)
        attrs[name] = int(value) if value.isdigit() else value.split(",") if name == "mattr" else value
    if kind not in KINDS:
        raise InvalidTarget(f"unknown target {text!r}", hint=_USE)
    return cast(TargetAttrs, attrs)
