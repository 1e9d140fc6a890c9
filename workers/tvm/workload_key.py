"""A tensor program's own name: stable across processes, platforms and the names a frontend gave.

TVM's structural hash differs between platforms and TVM versions, and variable names (`lv5`, `param_0`) differ
between models. The key is a hash of the program's text in which every name is replaced by its order of
appearance, so equal keys mean equal programs.
"""

import hashlib
import keyword
import re
from itertools import count
from typing import Any

import tvm
import tvm_ffi
from tvm.s_tir import SBlock

_STRING = r'"(?:[^"\\]|\\.)*"'
# A name with a dot before it belongs to TVMScript, one with `=` right behind it is an argument's.
_TOKEN = re.compile(rf"{_STRING}|(?<![\w.])[A-Za-z_]\w*(?!\w|=(?!=))")
# What starts a new variable, perhaps under a name that an earlier, closed scope used.
_BINDING = re.compile(r"^\s*+(?:for (?P<loops>.+) in |(?P<axes>.+?) = T\.axis\.)")
_INTEGER = re.compile(r"(?<![\w.])\d+(?![\w.])")
_KEPT = frozenset({*keyword.kwlist, "T", "I", "Module", "main"})


def canonical(mod: Any) -> Any:
    """The same program with its blocks named b0, b1, ... in order.

    Traces find blocks by name: two models whose programs have one key must share one set of names, or the
    schedules of one cannot be applied to the other.
    """
    names = canonical_names(mod)
    functions = {var: _renamed(function, names) for var, function in mod.functions.items()}
    return tvm.IRModule(functions, attrs=mod.attrs)


def canonical_names(mod: Any) -> dict[str, str]:
    """What `canonical` calls a program's blocks, by their names."""
    names: dict[str, str] = {}

    def note(block: Any) -> None:
        if block.name_hint != "root":
            names.setdefault(str(block.name_hint), f"b{len(names)}")

    tvm_ffi.structural_walk(mod, (SBlock, note), order="pre")
    return names


def workload_key(mod: Any) -> str:
    """SHA-256 of the program's normalised text."""
    return hashlib.sha256(normalised_text(mod).encode()).hexdigest()


def structure_key(mod: Any) -> str:
    """Hash of the loop structure alone: programs that differ only in sizes share it."""
    text = _INTEGER.sub("_", normalised_text(mod))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def normalised_text(mod: Any) -> str:
    """The program as TVMScript with every name replaced by its order of appearance."""
    names: dict[str, str] = {}
    fresh = count()

    def rename(match: re.Match[str]) -> str:
        token = match.group()
        if token in _KEPT or token.startswith('"'):
            return token
        if token not in names:
            names[token] = f"v{next(fresh)}"
        return names[token]

    def line(text: str) -> str:
        binding = _BINDING.match(text)
        for name in _TOKEN.findall((binding and (binding["loops"] or binding["axes"])) or ""):
            names.pop(name, None)
        return _TOKEN.sub(rename, text)

    # With metadata: constants inside a program are part of what it computes.
    lines = canonical(mod).script(show_meta=True).splitlines()
    return "\n".join(line(text) for text in lines if not text.lstrip().startswith("#"))


def _renamed(function: Any, names: dict[str, str]) -> Any:
    def rename(block: Any) -> Any:
        if block.name_hint == "root":
            return block
        return SBlock(
            block.iter_vars,
            block.reads,
            block.writes,
            names[str(block.name_hint)],
            block.body,
            block.init,
            block.alloc_buffers,
            block.match_buffers,
            block.annotations,
        )

    return tvm_ffi.structural_map(function, (SBlock, rename))
