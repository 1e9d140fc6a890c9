"""Choose the target's instruction for products of tiles, and schedule them.

The schedule rule divides columns of weights among the cores. A core computes the rows that
read the same columns in succession. Consumers run on 2 x 2 tiles of sums still in cache.
"""

from typing import Any, Final

import tvm
from tvm.target.codegen import target_has_features

from mallorn.graphc.core.graph_rewriting import SUGGESTS, inline_all_but
from mallorn.graphc.quant import arm_tile_instructions, x86_tile_instructions
from mallorn.graphc.quant.tile_instruction import RULE, TileInstruction

INSTRUCTIONS: Final[tuple[TileInstruction, ...]] = (
    x86_tile_instructions.INT8,
    x86_tile_instructions.BF16,
    *arm_tile_instructions.INSTRUCTIONS,
)


def instructions_of(target: Any) -> list[TileInstruction]:
    """Return the instructions that a target has, at most one for a type of data."""
    if target is None or target.kind.name != "llvm":
        return []
    return [item for item in INSTRUCTIONS if target_has_features(item.feature, target)]


def best_instruction(data: str) -> TileInstruction | None:
    """Return the current target's instruction for tiles of this type of data, or None."""
    usable = instructions_of(tvm.target.Target.current())
    return next((item for item in usable if item.numbers.data == data), None)


def without_tiles(text: str) -> str:
    """Return LLVM text with the tile functions replaced by those for any processor."""
    for instruction in INSTRUCTIONS:
        text = text.replace(instruction.text, instruction.portable_llvm_text)
    return text


MAX_ROWS = 1 << 20  # most blocks of rows that read the same columns in succession


def schedule_tiles(schedule: Any, block: Any) -> list[Any]:
    """Schedule one parallel loop over parts of rows, then columns, then rows of a part."""
    schedule = inline_all_but(schedule, [block])
    followers = schedule.get_consumers(block)
    *rows, columns = schedule.get_loops(block)
    row_loop = schedule.fuse(*rows)
    extent = int(schedule.get(row_loop).extent)
    parts, rows = schedule.split(row_loop, schedule.sample_perfect_tile(row_loop, 2, MAX_ROWS, [1, extent]))
    schedule.reorder(parts, columns, rows)
    last = followers[0] if followers else schedule.cache_write(block, 0, "global")
    schedule.reverse_compute_at(last, rows, preserve_unit_loops=True)
    schedule.vectorize(schedule.get_loops(last)[-1])
    schedule.parallel(schedule.fuse(parts, columns, rows))
    for loop in schedule.get_loops(block):
        schedule.annotate(loop, RULE, 1)  # so that TVM does not split the loop again
    schedule.annotate(block, SUGGESTS, 1)
    return [schedule]


tvm.register_global_func(f"s_tir.meta_schedule.cpu.{RULE}", schedule_tiles, override=True)
