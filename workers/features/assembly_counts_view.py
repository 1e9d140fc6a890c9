"""The view `code` (Tuna): static instruction counts of a candidate's assembly.

Columns are log2(1 + count). Arithmetic and memory traffic are counted three times: once per
instruction, in innermost loops only, and weighted by the estimated number of executions.
"""

from collections.abc import Sequence
from typing import Final

import numpy as np

from costmodels.base import Column
from costmodels.views import CODE
from searchers.space import Matrix
from workers.features.assembly_parser import MachineInstruction, functions_of
from workers.features.instruction_sets import Does, InstructionSet, instruction_set

RUNS_OF_A_LOOP: Final = 8.0
DEEPEST: Final = 6
VECTOR_BYTES: Final = 16
WIDTHS_BYTES: Final = (64, 32, 16, 8, 4)
ARITHMETIC: Final = frozenset({Does.FMA, Does.MULTIPLY, Does.ADD, Does.DIVIDE, Does.LIMIT})
KINDS: Final = tuple(Does)
TRAFFIC: Final = ("arithmetic", "fma", "vectors", "loads", "stores", "stack", "branches")
WEIGHTS: Final = ("once", "innermost", "weighted")
COLUMNS: Final = (
    *("instructions", "functions", "loops", "deepest", "registers", "bytes"),
    *(str(kind) for kind in KINDS),
    *(f"of {width} bytes" for width in WIDTHS_BYTES),
    *(f"{traffic} {weight}" for weight in WEIGHTS for traffic in TRAFFIC),
    "fma per load",  # in innermost loops
)


def describe_code(target_kind: str, text: str) -> Matrix:
    """Return the feature row (a 1 x width matrix) of one candidate's assembly."""
    isa = instruction_set(target_kind, text)
    functions = functions_of(text)
    instructions = [each for function in functions for each in function.instructions]
    does = [isa.does(each) for each in instructions]
    widths = [isa.width_bytes(each) for each in instructions]
    vectors = [width for kind, width in zip(does, widths, strict=True) if kind in ARITHMETIC]
    registers = {number for each in instructions for number in isa.register.findall(each.operands)}
    traffic = _traffic(isa, instructions, does, widths)
    counts = [
        *(len(instructions), len(functions), sum(len(function.loops) for function in functions)),
        *(max((each.depth for each in instructions), default=0), len(registers), len(text)),
        *(does.count(kind) for kind in KINDS),
        *(vectors.count(width) for width in WIDTHS_BYTES),
        *traffic.reshape(-1).tolist(),
    ]
    logs = np.log2(1 + np.array(counts, dtype=np.float64))
    inner = dict(zip(TRAFFIC, np.log2(1 + traffic[WEIGHTS.index("innermost")]), strict=True))
    row = np.array([*logs, inner["fma"] - inner["loads"]], dtype=np.float32)
    return row.reshape(1, CODE.width)


def _traffic(
    isa: InstructionSet,
    instructions: Sequence[MachineInstruction],
    does: Sequence[Does],
    widths: Sequence[int],
) -> Column:
    """Sum each kind of TRAFFIC over all instructions; return one row per entry of WEIGHTS."""
    table = np.zeros((len(instructions), len(TRAFFIC)))
    for index, each in enumerate(instructions):
        loads, stores = isa.accesses(each)
        arithmetic = does[index] in ARITHMETIC
        table[index] = (
            arithmetic and widths[index] > 0,
            does[index] is Does.FMA,
            arithmetic and widths[index] >= VECTOR_BYTES,
            *(loads, stores),
            (loads or stores) and isa.on_stack(each),
            does[index] is Does.BRANCH,
        )
    depths = np.array([min(each.depth, DEEPEST) for each in instructions], dtype=np.float64)
    innermost = np.array([each.innermost for each in instructions], dtype=np.float64)
    return np.stack([np.ones(len(instructions)), innermost, RUNS_OF_A_LOOP**depths]) @ table
