"""Compute the features `code` (as in Tuna): static instruction counts of assembly.

Columns are log2(1 + count). Arithmetic and memory traffic are counted three times: once per
instruction, in innermost loops only, and weighted by the estimated number of executions.
"""

from typing import Final

import numpy as np

from mallorn.costmodels.views import CODE
from mallorn.searchers.space import Matrix
from mallorn.workers.features.assembly_parser import functions_of
from mallorn.workers.features.instruction_sets import Does, instruction_set

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


def code_features(target_kind: str, text: str) -> Matrix:
    """Return the instruction counts of one candidate's assembly as a matrix of one row."""
    isa = instruction_set(target_kind, text)
    functions = functions_of(text)
    instructions = [instruction for function in functions for instruction in function.instructions]
    kinds = [isa.kind_of(instruction) for instruction in instructions]
    widths = [isa.width_bytes(instruction) for instruction in instructions]

    table = np.zeros((len(instructions), len(TRAFFIC)))
    for index, (instruction, kind, width) in enumerate(zip(instructions, kinds, widths, strict=True)):
        loads, stores = isa.memory_accesses(instruction)
        is_arithmetic = kind in ARITHMETIC
        table[index] = (
            is_arithmetic and width > 0,
            kind is Does.FMA,
            is_arithmetic and width >= VECTOR_BYTES,
            *(loads, stores),
            (loads or stores) and isa.uses_stack(instruction),
            kind is Does.BRANCH,
        )
    depths = np.array([min(item.depth, DEEPEST) for item in instructions], dtype=np.float64)
    innermost = np.array([item.innermost for item in instructions], dtype=np.float64)
    weights = np.stack([np.ones(len(instructions)), innermost, RUNS_OF_A_LOOP**depths])  # WEIGHTS
    traffic = weights @ table

    vectors = [width for kind, width in zip(kinds, widths, strict=True) if kind in ARITHMETIC]
    registers = {number for item in instructions for number in isa.register.findall(item.operands)}
    counts = [
        *(len(instructions), len(functions), sum(len(function.loops) for function in functions)),
        *(max((item.depth for item in instructions), default=0), len(registers), len(text)),
        *(kinds.count(kind) for kind in KINDS),
        *(vectors.count(width) for width in WIDTHS_BYTES),
        *traffic.reshape(-1).tolist(),
    ]
    logs = np.log2(1 + np.array(counts, dtype=np.float64))
    innermost_logs = dict(zip(TRAFFIC, np.log2(1 + traffic[WEIGHTS.index("innermost")]), strict=True))
    fma_per_load = innermost_logs["fma"] - innermost_logs["loads"]
    return np.array([*logs, fma_per_load], dtype=np.float32).reshape(1, CODE.width)
