"""The view `executed` (Tuna): a candidate's executed instructions and its cache-line traffic.

Instructions count once per iteration of their loops (`workers.features.trip_counts`). Bounds
of parallel loops are unknown, for example, so all counts are scaled to match the program's
number of operations. Traffic comes from the lowered program: for the accesses that touch most
cache lines, the lines touched, the lines left after cache reuse, and the bytes between two
uses.
"""

from typing import Final

import numpy as np

from costmodels.base import Column
from costmodels.views import ACCESSES, EXECUTED, STATEMENTS, Count
from searchers.space import Matrix
from workers.features.assembly_counts_view import ARITHMETIC
from workers.features.assembly_parser import MachineFunction, functions_of
from workers.features.instruction_sets import ARM64, X86, Does, InstructionSet, instruction_set
from workers.features.trip_counts import COUNTS_ON_ARM64, COUNTS_ON_X86, UNKNOWN, runs_of

FLOAT_BYTES: Final = 4
# Columns of MetaSchedule's features of a statement; column 0 marks lines that are used.
FUSED, SUMS, PRODUCTS = 1, 2, 3  # of floats
PARALLEL: Final = 1 + 16 + 2 * 11 + 1  # the product of parallel extents
FIRST_BUFFER, BUFFERS, BUFFER = 1 + 57, 5, 18
LINES, DISTINCT, APART, LEFT = 5, 6, 11, 15  # APART: bytes between uses; LEFT: lines / uses


def describe_executed(target_kind: str, text: str, statements: Matrix) -> Matrix:
    """Return a candidate's feature row from its assembly and its row of `statements`."""
    isa = instruction_set(target_kind, text)
    table = np.exp2(STATEMENTS.tables(statements)[0].astype(np.float64)) - 1
    present = table[:, 0] > 0
    counts, hottest = np.zeros(len(Count)), (0.0, 0)
    for function in functions_of(text):
        if isa in (X86, ARM64):
            runs = np.array(runs_of(function, COUNTS_ON_X86 if isa is X86 else COUNTS_ON_ARM64))
        else:  # trip counts are read on x86 and AArch64 only
            runs = np.array([UNKNOWN**each.depth for each in function.instructions], dtype=np.float64)
        counts += _counts(function, runs, isa)
        hottest = max(hottest, _hottest(function, runs, isa))
    program_flops = (2 * table[present, FUSED] + table[present, SUMS] + table[present, PRODUCTS]).sum()
    code_flops = 2 * counts[Count.PRODUCTS] + counts[Count.SIMPLE]
    if program_flops > 0 and code_flops > 0:
        counts *= program_flops / code_flops
    counts[Count.ACCUMULATORS] = hottest[1]
    counts[Count.PIECES] = max(table[present, PARALLEL].max(initial=0.0), 1.0)
    row = np.concatenate([counts, _cache_traffic(table[present]).reshape(-1)])
    logs: Matrix = np.log2(1 + row).astype(np.float32)
    return logs.reshape(1, EXECUTED.width)


def _counts(function: MachineFunction, runs: Column, isa: InstructionSet) -> Column:
    counts = np.zeros(len(Count))
    for each, times in zip(function.instructions, runs, strict=True):
        does, lanes = isa.does(each), isa.width_bytes(each) / FLOAT_BYTES
        loads, stores = isa.accesses(each)
        counts[Count.INSTRUCTIONS] += times
        counts[Count.ARITHMETIC] += times * (does in ARITHMETIC and lanes > 0)
        counts[Count.PRODUCTS] += times * lanes * (does is Does.FMA)
        counts[Count.SIMPLE] += times * lanes * (does in (Does.ADD, Does.MULTIPLY))
        counts[Count.DIVIDES] += times * (does is Does.DIVIDE)
        counts[Count.LOADED] += times * loads * max(lanes, 1.0) * FLOAT_BYTES
        counts[Count.LOADS] += times * loads
        counts[Count.STORES] += times * stores
    return counts


def _hottest(function: MachineFunction, runs: Column, isa: InstructionSet) -> tuple[float, int]:
    """Return FMA executions and accumulator count of the innermost loop with the most FMAs."""
    best = 0.0, 0
    for start, end in function.loops:
        body = function.instructions[start : end + 1]
        targets = [each.operands.rsplit("%", 1)[-1] for each in body if isa.does(each) is Does.FMA]
        if targets and body[-1].innermost:
            best = max(best, (float(runs[end]) * len(targets), len(set(targets))))
    return best


def _cache_traffic(statements: Column) -> Column:
    """Return four columns for each of the accesses that touch most cache lines."""
    buffers = statements[:, FIRST_BUFFER : FIRST_BUFFER + BUFFERS * BUFFER].reshape(-1, BUFFER)
    largest = buffers[np.argsort(-buffers[:, LINES], kind="stable")[:ACCESSES]]
    traffic = np.zeros((ACCESSES, 4))
    traffic[: len(largest)] = largest[:, [LINES, LEFT, DISTINCT, APART]]
    return traffic
