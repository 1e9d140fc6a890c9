"""Compute a candidate's features `code` and `executed` from its assembly, as Tuna does."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from mallorn.costmodels.views import ACCESSES, CODE, EXECUTED, STATEMENTS, Count
from mallorn.searchers.space import Matrix
from mallorn.workers.features.assembly_parser import MachineFunction, functions_of
from mallorn.workers.features.instruction_sets import ARM64, X86, Does, instruction_set

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
FLOAT_BYTES: Final = 4
# Columns of MetaSchedule's features of a statement; column 0 marks lines that are used.
FUSED, SUMS, PRODUCTS = 1, 2, 3  # of floats
PARALLEL: Final = 1 + 16 + 2 * 11 + 1  # the product of parallel extents
FIRST_BUFFER, BUFFERS, BUFFER = 1 + 57, 5, 18
LINES, DISTINCT, APART, LEFT = 5, 6, 11, 15  # APART: bytes between uses; LEFT: lines / uses
UNKNOWN: Final = 8.0  # assumed trip count of a loop whose bounds are not constants
TOGGLED: Final = 2.0  # trip count of a loop that toggles a flag
NEAR: Final = 8  # instructions before the backward jump that are searched for its condition
BEFORE: Final = 60  # instructions before a loop that are searched for the start of its counter
MOST: Final = 1e7  # larger counts are misread: no candidate has such a loop
_X86_NAMES: Final = re.compile(r"^[re]?([abcd])x$|^([abcd])l$|^[re]?([sd]i|[sb]p)l?$|^(r\d+)[dwb]?$")


def code_features(target_kind: str, text: str) -> Matrix:
    """Return the features `code`: static instruction counts of one candidate's assembly.

    Columns are log2(1 + count). Arithmetic and memory traffic are counted three times: per
    instruction, in innermost loops only, and weighted by the estimated executions.
    """
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


@dataclass(frozen=True, slots=True)
class Counting:
    """Regular expressions for the assembly instructions that step, compare or initialise
    loop counters. Group `n` is a constant, and group `r` a register."""

    again: re.Pattern[str]  # backward jumps that end counted loops, not moved code
    compare: re.Pattern[str]
    flag: re.Pattern[str]
    step: re.Pattern[str]
    one: re.Pattern[str]
    moved: re.Pattern[str]  # a step that writes its result to another register
    begin: re.Pattern[str]
    zero: re.Pattern[str]


COUNTS_ON_X86: Final = Counting(
    again=re.compile(r"^j(?:ne|b|l) "),
    compare=re.compile(r"^cmp[bwlq] \$(?P<n>-?\d+), %(?P<r>\w+)$"),
    flag=re.compile(r"^testb \$1, %(?P<r>\w+)$"),
    step=re.compile(r"^(?P<sign>add|sub)[lq] \$(?P<n>-?\d+), %(?P<r>\w+)$"),
    one=re.compile(r"^(?P<sign>inc|dec)[lq] %(?P<r>\w+)$"),
    moved=re.compile(r"^lea[lq] (?P<n>-?\d+)\(%\w+\), %(?P<r>\w+)$"),
    begin=re.compile(r"^mov[lq] \$(?P<n>-?\d+), %(?P<r>\w+)$"),
    zero=re.compile(r"^xorl %(?P<r>\w+), %(?P=r)$"),
)


COUNTS_ON_ARM64: Final = Counting(
    again=re.compile(r"^b\.(?:ne|lo|lt) |^cbnz "),
    compare=re.compile(r"^cmp (?P<r>[xw]\d+), #(?P<n>-?\d+)"),
    flag=re.compile(r"^tst (?P<r>[xw]\d+), #0x1$"),
    step=re.compile(r"^(?P<sign>add|sub)s? (?P<r>[xw]\d+), (?P=r), #(?P<n>\d+)$"),
    one=re.compile(r"(?!)"),
    moved=re.compile(r"^add (?P<r>[xw]\d+), [xw]\d+, #(?P<n>\d+)$"),
    begin=re.compile(r"^mov (?P<r>[xw]\d+), #(?P<n>-?\d+)"),
    zero=re.compile(r"^mov (?P<r>[xw]\d+), [xw]zr$"),
)


def estimate_run_counts(function: MachineFunction, counting: Counting) -> list[float]:
    texts = [f"{item.mnemonic} {' '.join(item.operands.split())}" for item in function.instructions]
    runs = [1.0] * len(texts)
    for start, end in function.loops:
        trips = _estimate_trip_count(texts, start, end, counting)
        for index in range(start, end + 1):
            runs[index] = min(MOST, runs[index] * trips)
    return runs


def _estimate_trip_count(texts: Sequence[str], start: int, end: int, counting: Counting) -> float:
    """Return a loop's trip count, read from its counter, or UNKNOWN if it cannot be read.
    Code whose backward jump ends no counted loop runs once."""
    if not counting.again.match(texts[end]):
        return 1.0
    for text in reversed(texts[max(start, end - NEAR) : end]):
        if counting.flag.match(text):
            return TOGGLED
        comparison = counting.compare.match(text)
        if match := comparison or counting.step.match(text) or counting.one.match(text):
            register, last = _register_without_width(match["r"]), float(match["n"]) if comparison else 0.0
            return _trip_count_of_counter(texts, start, end, register, last, counting)
    return UNKNOWN


def _trip_count_of_counter(
    texts: Sequence[str], start: int, end: int, register: str, last: float, counting: Counting
) -> float:
    """Return the trip count of a counter in `register` that ends at `last`, or UNKNOWN."""
    step = 0.0
    for text in texts[start:end]:
        match = counting.step.match(text) or counting.one.match(text) or counting.moved.match(text)
        if match and _register_without_width(match["r"]) == register:
            groups = match.groupdict()
            size = float(groups.get("n") or 1.0)
            step = -size if groups.get("sign") in ("sub", "dec") else size
        if step:
            break

    first = 0.0
    for text in reversed(texts[max(0, start - BEFORE) : start]):
        zero, begin = counting.zero.match(text), counting.begin.match(text)
        if zero and _register_without_width(zero["r"]) == register:
            break
        if begin and _register_without_width(begin["r"]) == register:
            first = float(begin["n"])
            break

    trips = (last - first) / step if step else 0.0
    return trips if 1 <= trips <= MOST else UNKNOWN


def _register_without_width(name: str) -> str:
    match = _X86_NAMES.match(name)
    return next(filter(None, match.groups())) if match else name.lstrip("xw")


def executed_features(target_kind: str, text: str, statements: Matrix) -> Matrix:
    """Return the features `executed`: estimates of executed instructions and cache-line traffic.

    An instruction counts once per iteration of its loops if the assembly shows the loops'
    bounds; other loops, such as parallel ones, count as 8 iterations. All counts are then
    scaled to match the program's number of operations. Traffic is read from `statements`,
    the features that MetaSchedule computes for the lowered program's stores. Each access
    that touches many cache lines has four features: lines touched, lines per use, distinct
    lines, and bytes between two uses.
    """
    isa = instruction_set(target_kind, text)
    counts = np.zeros(len(Count))
    # FMA executions and accumulators of the innermost loop with the most FMA executions.
    hottest = 0.0, 0
    for function in functions_of(text):
        if isa in (X86, ARM64):
            runs = np.array(estimate_run_counts(function, COUNTS_ON_X86 if isa is X86 else COUNTS_ON_ARM64))
        else:  # trip counts are read on x86 and AArch64 only
            runs = np.array([UNKNOWN**item.depth for item in function.instructions], dtype=np.float64)
        for instruction, times in zip(function.instructions, runs, strict=True):
            kind, lanes = isa.kind_of(instruction), isa.width_bytes(instruction) / FLOAT_BYTES
            loads, stores = isa.memory_accesses(instruction)
            counts[Count.INSTRUCTIONS] += times
            counts[Count.ARITHMETIC] += times * (kind in ARITHMETIC and lanes > 0)
            counts[Count.PRODUCTS] += times * lanes * (kind is Does.FMA)
            counts[Count.SIMPLE] += times * lanes * (kind in (Does.ADD, Does.MULTIPLY))
            counts[Count.DIVIDES] += times * (kind is Does.DIVIDE)
            counts[Count.LOADED] += times * loads * max(lanes, 1.0) * FLOAT_BYTES
            counts[Count.LOADS] += times * loads
            counts[Count.STORES] += times * stores
        for start, end in function.loops:
            body = function.instructions[start : end + 1]
            targets = [item.operands.rsplit("%", 1)[-1] for item in body if isa.kind_of(item) is Does.FMA]
            if targets and body[-1].innermost:
                hottest = max(hottest, (float(runs[end]) * len(targets), len(set(targets))))

    table = np.exp2(STATEMENTS.tables(statements)[0].astype(np.float64)) - 1
    stores_of_program = table[table[:, 0] > 0]
    flops = 2 * stores_of_program[:, FUSED] + stores_of_program[:, SUMS] + stores_of_program[:, PRODUCTS]
    program_flops = flops.sum()
    code_flops = 2 * counts[Count.PRODUCTS] + counts[Count.SIMPLE]
    if program_flops > 0 and code_flops > 0:
        counts *= program_flops / code_flops
    counts[Count.ACCUMULATORS] = hottest[1]
    counts[Count.PIECES] = max(stores_of_program[:, PARALLEL].max(initial=0.0), 1.0)

    # Four columns for each of the accesses that touch most cache lines.
    buffers = stores_of_program[:, FIRST_BUFFER : FIRST_BUFFER + BUFFERS * BUFFER].reshape(-1, BUFFER)
    largest = buffers[np.argsort(-buffers[:, LINES], kind="stable")[:ACCESSES]]
    traffic = np.zeros((ACCESSES, 4))
    traffic[: len(largest)] = largest[:, [LINES, LEFT, DISTINCT, APART]]

    logs: Matrix = np.log2(1 + np.concatenate([counts, traffic.reshape(-1)])).astype(np.float32)
    return logs.reshape(1, EXECUTED.width)
