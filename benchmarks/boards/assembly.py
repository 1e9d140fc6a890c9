"""The assembly of exported schedules: vector registers that innermost loops spill, and what multiplies."""

import json
from collections import Counter
from pathlib import Path
from typing import Any, Final

import tvm
from tvm.s_tir import Schedule
from tvm.s_tir import meta_schedule as ms
from tvm.s_tir.analysis import estimate_tir_flops

from mallorn.graphc.export.apply_schedules_main import RECORDS
from mallorn.graphc.export.code_generation import compile_to_library
from mallorn.workers.features.assembly_parser import functions_of
from mallorn.workers.features.instruction_sets import instruction_set
from mallorn.workers.tvm.programs.tensor_intrinsics import load_intrinsics

HOTTEST: Final = 10
_VECTOR: Final = "q"  # what AArch64 calls a register of 128 bits where it is loaded and stored
_MULTIPLY: Final = ("fmla", "fmlal", "fmlal2", "sdot", "udot", "usdot", "smmla", "ummla", "usmmla")


def describe_kernels(exported: Path, target: str) -> list[dict[str, Any]]:
    """Return the exported kernels with most operations: their spills and their products."""
    load_intrinsics(target)
    files = [str(exported / name) for name in RECORDS]
    database = ms.database.JSONDatabase(*files)
    best: dict[Any, Any] = {}
    for record in database.get_all_tuning_records():
        best.setdefault(record.workload, record)
    described = [_describe(record, tvm.target.Target(json.loads(target))) for record in best.values()]
    return sorted(described, key=lambda kernel: -kernel["operations"])[:HOTTEST]


def _describe(record: Any, target: Any) -> dict[str, Any]:
    schedule = Schedule(record.workload.mod)
    record.trace.apply_to_schedule(schedule, remove_postproc=False)
    text = str(compile_to_library(schedule.mod, target).inspect_source("asm"))
    return {"operations": float(estimate_tir_flops(record.workload.mod)), **describe_assembly(text)}


def describe_assembly(text: str) -> dict[str, Any]:
    """Return how often innermost loops store and load vector registers on the stack, and their products."""
    isa = instruction_set("llvm", text)
    inner = [each for function in functions_of(text) for each in function.instructions if each.innermost]
    stack = [each for each in inner if isa.uses_stack(each) and each.operands.startswith(_VECTOR)]
    return {
        "spills": sum(each.mnemonic.startswith("st") for each in stack),
        "reloads": sum(each.mnemonic.startswith("ld") for each in stack),
        "products": dict(Counter(each.mnemonic for each in inner if each.mnemonic in _MULTIPLY)),
    }
