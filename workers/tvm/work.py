"""How many operations a program takes."""

from typing import Any

import tvm
import tvm_ffi
from tvm.s_tir import SBlock
from tvm.s_tir.analysis import estimate_tir_flops
from tvm.tirx import Evaluate

from workers.tvm.templates.rewriting import WORK, collect


def operations(mod: Any) -> float:
    """As TVM counts them; blocks of vectors and functions, which it cannot read, say it themselves."""
    said = sum(
        int(block.annotations[WORK]) for block in collect(mod["main"], SBlock) if WORK in block.annotations
    )
    return float(said + estimate_tir_flops(_read(mod)))


def _read(mod: Any) -> Any:
    """The program without what those blocks do."""
    functions = {var: tvm_ffi.structural_map(each, (SBlock, _emptied)) for var, each in mod.functions.items()}
    return tvm.IRModule(functions, attrs=mod.attrs)


def _emptied(block: Any) -> Any:
    if WORK not in block.annotations:
        return block
    nothing = Evaluate(tvm.tirx.const(0))
    return SBlock(block.iter_vars, block.reads, block.writes, block.name_hint, nothing)
