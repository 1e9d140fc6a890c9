"""Functions that only call a library, such as a sort, as a block within a root: TVM's passes look for one."""

from typing import Any

import tvm
import tvm_ffi
from tvm.s_tir import SBlock, SBlockRealize
from tvm.tirx import PrimFunc


def calls() -> Any:
    """The pass that puts a root around them."""

    def wrap(mod: Any, _: Any) -> Any:
        functions = {var: _wrapped(function) for var, function in mod.functions.items()}
        return tvm.IRModule(functions, attrs=mod.attrs)

    return tvm.transform.module_pass(wrap, opt_level=0, name="Calls")


def _wrapped(function: Any) -> Any:
    if not isinstance(function, PrimFunc) or not isinstance(function.body, SBlockRealize):
        return function
    if _blocks_within(function.body) > 1:
        return function
    root = SBlock([], [], [], "root", function.body)
    return function.with_body(SBlockRealize([], True, root))


def _blocks_within(body: Any) -> int:
    found: list[Any] = []
    tvm_ffi.structural_walk(body, (SBlock, lambda block: found.append(block)), order="pre")
    return len(found)
