"""Targets in canonical form: equal targets have equal JSON texts and equal short keys."""

import hashlib
import json
import platform
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, cast

from mallorn.core.errors import InvalidRequest, InvalidTarget, MissingPackage
from mallorn.core.registry import VIRTUAL_DEVICES, failed_kinds, list_kinds
from mallorn.core.storable_json import TOLD, check_storable, read_json
from mallorn.core.target_kind import TargetAttrs, TargetKind

LOCAL = "local"
NATIVE: Final = "native"  # the toolchain for the instruction set of the host that builds
#: Names of instruction sets in LLVM's triples that mean the same as another.
SAME_SETS: Final = {"arm64": "aarch64", "amd64": "x86_64"}
KNOWN_KEYS = frozenset(TargetAttrs.__annotations__)
EXAMPLE = '{"kind": "llvm", "mcpu": "haswell", "num-cores": 4}'
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
_UNSAFE: Final = re.compile(r"[^A-Za-z0-9.+]+")  # characters that a short name replaces
_SHORT: Final = 60


@dataclass(frozen=True)
class Target:
    """A target in canonical form: keys sorted, no white space.

    A CPU target has `num-cores`. Its kind of hardware completes it otherwise.
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
    def short_name(self) -> str:
        """Name for directories, such as `znver4` or `aarch64`; targets may share it."""
        attrs = self.attrs
        machine, cpu = instruction_set(attrs).replace("_", "-"), attrs.get("mcpu", "")
        words = ["" if cpu.startswith(machine) else machine, cpu, attrs.get("arch", "")]
        words = ["" if self.runs_on_cores and any(words) else self.kind, *words, attrs.get("device", "")]
        names = (_UNSAFE.sub("-", word).strip("-.") for word in words)
        return "-".join(filter(None, names))[:_SHORT] or self.key

    @property
    def kind(self) -> str:
        return self.attrs["kind"]

    @cached_property
    def hardware(self) -> TargetKind:
        """The kind of hardware that it names. Raises MissingPackage if it is not installed."""
        try:
            return find_kind(self.attrs)
        except InvalidTarget as error:  # it was installed when the target was stored
            raise MissingPackage(error.message, hint="install it again: docs/kinds.md") from None

    @property
    def measured_by(self) -> TargetKind | None:
        """The kind of hardware that measures; None if a virtual device does."""
        return None if self.virtual_device else self.hardware

    @property
    def runs_on_cores(self) -> bool:
        """Whether its programs run on the cores of their host, and not on an accelerator."""
        return self.hardware.runs_on_cores

    @property
    def num_cores(self) -> int:
        return self.attrs.get("num-cores", 1)

    @property
    def toolchain(self) -> str:
        """Tools that build for it: of a kind, an instruction set, or NATIVE, the builder's."""
        if self.virtual_device:
            return instruction_set(self.attrs) or NATIVE
        return self.hardware.toolchain(self.attrs)

    @property
    def virtual_device(self) -> str:
        """Name of the measurer that replaces the target's device; empty if hardware measures."""
        device = self.attrs.get("device", "")
        return device if device in VIRTUAL_DEVICES else ""

    def __str__(self) -> str:
        return self.text


def parse_target(value: str | Mapping[str, object]) -> Target:
    """Read a target given as JSON (text or dict), a TVM tag or the old `llvm -mcpu=...`.

    The target's kind of hardware completes it.
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
    hardware = find_kind(attrs)
    cores: object = attrs.get("num-cores")
    if hardware.runs_on_cores and not (isinstance(cores, int) and cores is not True and cores > 0):
        raise InvalidTarget(
            "a CPU target needs num-cores, a whole number above 0",
            hint=f"--target '{json.dumps({**attrs, 'num-cores': 4})}'   (for four cores)",
        )
    for name, value_given in attrs.items():
        type_name, fits = _TYPES.get(TargetAttrs.__annotations__[name], _ANYTHING)
        if not fits(value_given):
            words = str(value_given)[:TOLD]
            raise InvalidTarget(f"the target's {name} is not a {type_name}: {words!r}", hint=_USE)
    attrs = hardware.complete(attrs)
    text = json.dumps(attrs, sort_keys=True, separators=(",", ":"))
    if len(text) > LONGEST:
        raise InvalidTarget(f"the target has {len(text)} characters, more than {LONGEST}", hint=_USE)
    return Target(text)


def name_targets(targets: Sequence[Target], spellings: Sequence[object]) -> dict[str, Target]:
    """Return targets by name: the short name, followed by the key if others share it.

    Raises InvalidRequest, with both of its `spellings`, if a target is given twice.
    """
    for index, target in enumerate(targets):
        if (first := targets.index(target)) < index:
            message = f"{spellings[first]} and {spellings[index]} are the same target"
            raise InvalidRequest(message, hint="leave one of the two out")
    names = [target.short_name for target in targets]
    return {
        name if names.count(name) == 1 else f"{name}-{target.key}": target
        for name, target in zip(names, targets, strict=True)
    }


def _attributes(value: str | Mapping[str, object]) -> TargetAttrs:
    if not isinstance(value, str):
        named = {} if "kind" in value else _kind_of_tag(str(value.get("tag")))
        return cast(TargetAttrs, {**named, **value})
    text = value.strip()
    if text.startswith("{"):
        try:
            return _attributes(dict(read_json(text)))
        except ValueError as error:
            raise InvalidTarget(f"the target is not valid JSON: {error}", hint=_USE) from None
    if named := _kind_of_tag(text):
        return cast(TargetAttrs, {**named, "tag": text})
    kind, *flags = text.split() or [""]
    attrs: dict[str, str | int | list[str]] = {"kind": kind}
    for flag in flags:
        name, equals, value = flag.lstrip("-").partition("=")
        if not equals or not flag.startswith("-"):
            raise InvalidTarget(f"cannot read {flag[:TOLD]!r} in target {text[:TOLD]!r}", hint=_USE)
        attrs[name] = int(value) if _NUMBER.fullmatch(value) else value
        if name in _LISTS:
            attrs[name] = value.split(",")
    return cast(TargetAttrs, attrs)


def find_kind(attrs: TargetAttrs) -> TargetKind:
    """Return the kind of hardware of a target's attributes. Raises InvalidTarget without one."""
    tvm_kind = str(attrs["kind"])
    for kind in list_kinds():
        if tvm_kind in kind.tvm_kinds and kind.owns(attrs):
            return kind
    known, hint = _tvm_kinds(), _USE
    if tvm_kind in known:
        machine = instruction_set(attrs) or platform.machine()
        names = ", ".join(kind.name for kind in list_kinds())
        message = f"no kind of hardware is installed for {machine[:TOLD]}; there are {names}"
        hint = "docs/kinds.md"
    else:
        message = f"unknown target kind {tvm_kind[:TOLD]!r}; known: {', '.join(sorted(known))}"
    for failed in failed_kinds():
        message, hint = f"{message}; {failed.message}", failed.hint
    raise InvalidTarget(message, hint=hint)


def kind_of_word(text: str) -> TargetKind | None:
    """Return the kind of accelerator whose name, as a target, means one of a machine's own."""
    return next((kind for kind in list_kinds() if kind.name == text and not kind.runs_on_cores), None)


def instruction_set(attrs: TargetAttrs) -> str:
    """Return the instruction set that a target names, as `uname -m` spells it; empty if none."""
    name = str(attrs.get("mtriple", "")).partition("-")[0]
    return SAME_SETS.get(name, name)


def _tvm_kinds() -> frozenset[str]:
    return frozenset().union(*(kind.tvm_kinds for kind in list_kinds()))


def _kind_of_tag(text: str) -> dict[str, str]:
    """Return the attribute `kind` of a device that TVM names by this tag; empty if it is no tag."""
    kinds = (kind for kind in list_kinds() if kind.tag_prefix and text.startswith(kind.tag_prefix))
    return next(({"kind": name} for kind in kinds for name in sorted(kind.tvm_kinds)), {})
