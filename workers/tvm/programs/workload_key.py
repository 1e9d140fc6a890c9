"""A tensor program's key, independent of process, platform and the importer's names.

TVM's structural hash differs between platforms and TVM versions, and variable names (``lv5``,
``param_0``) differ between models. The key is a hash of the program's text in which every
name is replaced by a number in order of appearance, so equal keys mean equal programs.
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
# A name after a dot belongs to TVMScript; a name directly before `=` is a keyword argument.
_TOKEN = re.compile(rf"{_STRING}|(?<![\w.])[A-Za-z_]\w*(?!\w|=(?!=))")
# Binds a new variable, whose name may have been used in an earlier, closed scope.
_BINDING = re.compile(r"^\s*+(?:for (?P<loops>.+) in |(?P<axes>.+?) = T\.axis\.)")
_INTEGER = re.compile(r"(?<![\w.])\d+(?![\w.])")
_RESERVED = frozenset({*keyword.kwlist, "T", "I", "Module", "main"})


def rename_blocks_canonically(mod: Any) -> Any:
    """Return the program with its blocks named b0, b1, ... in order. Traces find blocks by
    name, so these names let a schedule fit all programs with the same key."""
    names = canonical_names(mod)

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

    functions = {var: tvm_ffi.structural_map(f, (SBlock, rename)) for var, f in mod.functions.items()}
    return tvm.IRModule(functions, attrs=mod.attrs)


def canonical_names(mod: Any) -> dict[str, str]:
    """Return the new names that `rename_blocks_canonically` gives to blocks, by their old names."""
    names: dict[str, str] = {}

    def note(block: Any) -> None:
        if block.name_hint != "root":
            names.setdefault(str(block.name_hint), f"b{len(names)}")

    tvm_ffi.structural_walk(mod, (SBlock, note), order="pre")
    return names


def workload_key(mod: Any) -> str:
    """Return a program's key, the SHA-256 of its normalised text."""
    return hashlib.sha256(normalised_text(mod).encode()).hexdigest()


def structure_key(mod: Any) -> str:
    """Return a hash of a program without numbers, equal for all sizes of its loops."""
    return hashlib.sha256(_INTEGER.sub("_", normalised_text(mod)).encode()).hexdigest()[:16]


def normalised_text(mod: Any) -> str:
    """Return a program as TVMScript, with names numbered in order of appearance."""
    names: dict[str, str] = {}
    numbers = count()

    def rename(match: re.Match[str]) -> str:
        token = match.group()
        if token in _RESERVED or token.startswith('"'):
            return token
        if token not in names:
            names[token] = f"v{next(numbers)}"
        return names[token]

    def line(text: str) -> str:
        binding = _BINDING.match(text)
        for name in _TOKEN.findall((binding and (binding["loops"] or binding["axes"])) or ""):
            names.pop(name, None)
        return _TOKEN.sub(rename, text)

    # With metadata, since constants inside a program are part of its computation.
    lines = rename_blocks_canonically(mod).script(show_meta=True).splitlines()
    return "\n".join(line(text) for text in lines if not text.lstrip().startswith("#"))
