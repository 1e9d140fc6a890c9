"""Clip as operators: TVM's importer makes tensor functions of it, which block layout changes."""

from typing import Any

import tvm
from tvm import relax
from tvm.relax.dpl import is_op, rewrite_call, wildcard

BOUNDS = {"maximum": relax.op.maximum, "minimum": relax.op.minimum}


def restore_clip() -> Any:
    """The pass that turns them back into operators."""
    return tvm.transform.module_pass(_restore_all, opt_level=0, name="RestoreClip")


def _restore_all(mod: Any, _: Any) -> Any:
    tensor_function = is_op("relax.call_tir")(wildcard(), wildcard())
    restored = {
        var: rewrite_call(tensor_function, _restore, graph) if isinstance(graph, relax.Function) else graph
        for var, graph in mod.functions.items()
    }
    return tvm.IRModule(restored, attrs=mod.attrs)


def _restore(call: Any, _: Any) -> Any:
    name = call.args[0].name_hint.rstrip("0123456789")
    values = list(call.args[1].fields)
    known = name in BOUNDS and len(values) == 2 and values[1].ty.ndim == 0
    return BOUNDS[name](*values) if known else call
