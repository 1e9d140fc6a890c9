"""ONNX's own cases of each of its operators: a model of one node, inputs, and what they give."""

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from onnx import ModelProto, numpy_helper
from onnx.backend.test.case.node import collect_testcases

# Written out in other operators by ONNX: the same case twice.
_TWINS = "expanded"


@dataclass(frozen=True)
class Case:
    """A model and what it should answer, to within these tolerances."""

    name: str
    operator: str
    model: ModelProto
    inputs: Sequence[Any]
    outputs: Sequence[Any]
    rtol: float
    atol: float


@cache
def cases() -> Mapping[str, Case]:
    """All of them by name, newest operator set first where ONNX has one in several."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # its cases of casts overflow on purpose
        collected = collect_testcases(None)
    found = (_case(each) for each in collected if _TWINS not in each.name)
    return {case.name: case for case in found if case is not None}


def with_constants(case: Case) -> Case:
    """The case as exporters write it: only the first input is data, sizes and axes are constants."""
    model = ModelProto()
    model.CopyFrom(case.model)
    names = [value.name for value in model.graph.input]
    for name, value in zip(names[1:], case.inputs[1:], strict=True):
        model.graph.initializer.append(numpy_helper.from_array(np.asarray(value), name))
    del model.graph.input[1:]
    return Case(case.name, case.operator, model, case.inputs[:1], case.outputs, case.rtol, case.atol)


def _case(each: Any) -> Case | None:
    """None for those about training, and about values that are no tensors."""
    if each.model is None or len(each.model.graph.node) != 1 or len(each.data_sets) != 1:
        return None
    node = each.model.graph.node[0]
    inputs, outputs = each.data_sets[0]
    if node.domain not in ("", "ai.onnx") or not all(_is_tensor(value) for value in (*inputs, *outputs)):
        return None
    return Case(each.name, node.op_type, each.model, inputs, outputs, each.rtol, each.atol)


def _is_tensor(value: Any) -> bool:
    return isinstance(value, np.ndarray | np.generic) and value.dtype.kind not in "OSU"
