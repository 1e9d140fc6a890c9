"""The view `executed` (Tuna): what runs of a candidate's code, and the lines that it moves.

Instructions are counted as often as their loops run (`workers.features.trip_counts`). Where a loop's bounds
come from elsewhere, as those of a parallel loop do, all counts are scaled so that the products are as many
as in the program. What moves is taken from the lowered program: each of the accesses with the most lines, the
lines that are left if what is read again is still in the cache, and how many bytes come between.
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
# MetaSchedule's numbers of a statement, behind the mark that it is there.
FUSED, SUMS, PRODUCTS = 1, 2, 3  # of floats
PARALLEL: Final = 1 + 16 + 2 * 11 + 1  # the product of parallel extents
FIRST_BUFFER, BUFFERS, BUFFER = 1 + 57, 5, 18
LINES, DISTINCT, APART, LEFT = 5, 6, 11, 15  # of a buffer; bytes between uses, lines over uses


def describe_executed(target_kind: str, text: str, statements: Matrix) -> Matrix:
    """The row of one candidate: its assembly, and its row of the view `statements`."""
    isa = instruction_set(target_kind, text)
    table = np.exp2(STATEMENTS.tables(statements)[0].astype(np.float64)) - 1
    present = table[:, 0] > 0
    counts, hottest = np.zeros(len(Count)), (0.0, 0)
    for function in functions_of(text):
        if isa in (X86, ARM64):
            runs = np.array(runs_of(function, COUNTS_ON_X86 if isa is X86 else COUNTS_ON_ARM64))
        else:  # how loops are written is not known
            runs = np.array([UNKNOWN**each.depth for each in function.instructions], dtype=np.float64)
        counts += _counts(function, runs, isa)
        hottest = max(hottest, _hottest(function, runs, isa))
    known = (2 * table[present, FUSED] + table[present, SUMS] + table[present, PRODUCTS]).sum()
    found = 2 * counts[Count.PRODUCTS] + counts[Count.SIMPLE]
    if known > 0 and found > 0:  # the code computes as much as the program does
        counts *= known / found
    counts[Count.ACCUMULATORS] = hottest[1]
    counts[Count.PIECES] = max(table[present, PARALLEL].max(initial=0.0), 1.0)
    row = np.concatenate([counts, _moved(table[present]).reshape(-1)])
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
    """How often the products of the innermost loop that runs most are begun, and in how many registers."""
    best = 0.0, 0
    for start, end in function.loops:
        body = function.instructions[start : end + 1]
        sums = [each.operands.rsplit("%", 1)[-1] for each in body if isa.does(each) is Does.FMA]
        if sums and body[-1].innermost:
            best = max(best, (float(runs[end]) * len(sums), len(set(sums))))
    return best


def _moved(statements: Column) -> Column:
    """The accesses with the most lines: lines, those left by reuse, distinct ones, bytes between."""
    buffers = statements[:, FIRST_BUFFER : FIRST_BUFFER + BUFFERS * BUFFER].reshape(-1, BUFFER)
    most = buffers[np.argsort(-buffers[:, LINES], kind="stable")[:ACCESSES]]
    moved = np.zeros((ACCESSES, 4))
    moved[: len(most)] = most[:, [LINES, LEFT, DISTINCT, APART]]
    return moved
