"""Build matrix products with 8- or 4-bit weights that have a scale per block of inputs.

A decoder step reads every weight once, so weights keep their width and are stored in the
order in which they are read: for each vector of columns, block after block. The instruction
multiplies unsigned bytes (weights) by signed bytes (inputs). `llvm_byte_dot_products` splits
a float input into two signed bytes, with little loss. Sums within a block are integers.
"""

from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
import tvm

from mallorn.graphc.core import graph_rewriting
from mallorn.graphc.quant import dot_product_function, llvm_byte_dot_products

RULE = "mallorn_blocks"


@dataclass(frozen=True)
class BlockQuantizedMatmul:
    """Sizes of a product of rows and `bits`-bit weights that have a scale per block."""

    instruction: Any  # an `Instruction` of `llvm_byte_dot_products`
    rows: tuple[int, ...]
    outputs: int
    blocks: int
    block: int
    bits: int
    zero: int | None  # the zero point; None: one per block and output

    @property
    def vectors(self) -> int:
        return int(
            graph_rewriting.round_up_to_vectors(self.outputs, self.instruction.lanes)
            // self.instruction.lanes
        )

    @property
    def operation_count(self) -> int:
        return 2 * prod(self.rows) * self.blocks * self.block * self.outputs

    @property
    def weight_block_bytes(self) -> int:
        """Bytes of weights in a block of inputs and a vector of outputs."""
        return int(self.block * self.instruction.lanes * self.bits // llvm_byte_dot_products.BYTES)


def pack_weights(product: BlockQuantizedMatmul, weights: Any) -> Any:
    """Pack weights from [blocks, block, outputs] to reading order, [vectors, blocks, bytes]."""
    lanes, nibbles = product.instruction.lanes, product.bits == llvm_byte_dot_products.NIBBLES
    halves_and_quad = (2, dot_product_function.QUAD) if nibbles else (dot_product_function.QUAD,)
    split = _filled(product, weights).reshape(product.blocks, -1, *halves_and_quad, product.vectors, lanes)
    ordered = np.moveaxis(np.moveaxis(split, -2, 0), -1, -2)  # vectors, blocks, steps, (halves,) lanes, quad
    if nibbles:
        ordered = ordered[..., 0, :, :] | (ordered[..., 1, :, :] << llvm_byte_dot_products.NIBBLES)
    return np.ascontiguousarray(ordered).reshape(product.vectors, product.blocks, product.weight_block_bytes)


def pack_by_block(product: BlockQuantizedMatmul, numbers: Any) -> Any:
    """Pack scales or zero points from [blocks, outputs] to [vectors, blocks, lanes]."""
    split = _filled(product, numbers).reshape(product.blocks, product.vectors, product.instruction.lanes)
    return np.ascontiguousarray(np.moveaxis(split, 1, 0))


def _filled(product: BlockQuantizedMatmul, numbers: Any) -> Any:
    padding = product.vectors * product.instruction.lanes - product.outputs
    return np.pad(numbers, [(0, 0)] * (numbers.ndim - 1) + [(0, padding)]) if padding else numbers


def build_function(product: BlockQuantizedMatmul) -> Any:
    """Build the tensor function; it quantises inputs first. TVM can fuse what follows."""
    lanes, block, outputs = product.instruction.lanes, product.block, product.outputs
    rows = [f"i{axis}" for axis in range(len(product.rows))]
    row = ", ".join(f"v{axis}" for axis in rows)
    padded_outputs = product.vectors * lanes
    all_sizes = graph_rewriting.numbers((*product.rows, product.vectors, product.blocks))
    row_sizes, spatial = graph_rewriting.numbers(product.rows), "S" * len(rows)
    blocks_of_rows = graph_rewriting.numbers((*product.rows, product.blocks))
    is_full = padded_outputs == outputs
    result = "y" if is_full else "z"
    split = llvm_byte_dot_products.build_input_quantizer(product.instruction, block, product.bits)
    total = llvm_byte_dot_products.build_block_dot_product(product.instruction, block, product.bits)
    row_number, *inner_rows = (f"v{axis}" for axis in rows)
    for axis, size in zip(inner_rows, product.rows[1:], strict=True):
        row_number = f"({row_number} * {size} + {axis})"
    place = f"{row_number} * {2 * block * product.blocks} + vk * {2 * block}"
    inputs = f'T.tvm_access_ptr(T.type_annotation("int8"), q.data, {place}, {2 * block}, '
    vector, has_one_zero = f"T.ramp(vj * {lanes}, 1, {lanes})", product.zero is not None
    sums = f"{result}[{row}, {vector}]"
    of_lanes = f"vj, vk, T.ramp(0, 1, {lanes})"
    start = (
        f"T.broadcast(t[{row}, vk] * T.int32({-(product.zero or 0)}), {lanes})"
        if has_one_zero
        else f'T.Cast("int32x{lanes}", u[{of_lanes}]) * T.broadcast(T.int32(0) - t[{row}, vk], {lanes})'
    )
    weight_shape = (product.vectors, product.blocks, product.weight_block_bytes)
    beside_weights = graph_rewriting.numbers((product.vectors, product.blocks, lanes))
    return graph_rewriting.parse_tvmscript(f"""
@T.prim_func(private=True, s_tir=True)
def main(
    x: T.Buffer(({row_sizes}, T.int64({product.blocks * block})), "float32"),
    w: T.Buffer(({graph_rewriting.numbers(weight_shape)}), "uint8"),
    s: T.Buffer(({beside_weights}), "float32"),
    {"" if has_one_zero else f'u: T.Buffer(({beside_weights}), "uint8"),'}
    y: T.Buffer(({row_sizes}, T.int64({outputs})), "float32"),
) -> None:
    T.func_attr({{
        "tirx.noalias": True,
        "op_pattern": {graph_rewriting.OUT_ELEMENTWISE_FUSABLE},
    }})
    q = T.sblock_alloc_buffer(({blocks_of_rows}, T.int64({2 * block})), "int8")
    d = T.sblock_alloc_buffer(({blocks_of_rows}), "float32")
    t = T.sblock_alloc_buffer(({blocks_of_rows}), "int32")
    {"" if is_full else f'z = T.sblock_alloc_buffer(({row_sizes}, T.int64({padded_outputs})), "float32")'}
    for {", ".join(rows)}, k in T.grid({blocks_of_rows}):
        with T.sblock("split"):
            {row}, vk = T.axis.remap("{spatial}S", [{", ".join(rows)}, k])
            T.reads(x[{row}, vk * {block} : vk * {block} + {block}])
            T.writes(q[{row}, vk, 0 : {2 * block}], d[{row}, vk], t[{row}, vk])
            T.sblock_attr({{"{graph_rewriting.WORK}": 0}})
            T.attr(0, "pragma_import_llvm", {split.text!r})
            T.evaluate(T.call_extern(
                "void",
                "{split.name}",
                T.address_of(x[{row}, vk * {block}]),
                {inputs}2),
                T.address_of(d[{row}, vk]),
                T.address_of(t[{row}, vk]),
            ))
    for {", ".join(rows)}, j, k in T.grid({all_sizes}):
        with T.sblock("blocks"):
            {row}, vj, vk = T.axis.remap("{spatial}SR", [{", ".join(rows)}, j, k])
            T.reads(
                q[{row}, vk, 0 : {2 * block}], d[{row}, vk], t[{row}, vk],
                w[vj, vk, 0 : {product.weight_block_bytes}], s[vj, vk, 0 : {lanes}],
                {"" if has_one_zero else f"u[vj, vk, 0 : {lanes}],"}
            )
            T.writes({result}[{row}, vj * {lanes} : vj * {lanes} + {lanes}])
            T.sblock_attr({{
                "{graph_rewriting.RULE}": "{RULE}",
                "{graph_rewriting.OPERATOR}": "blocked_matmul",
                "{graph_rewriting.WORK}": {product.operation_count},
            }})
            with T.init():
                {sums} = T.broadcast(T.float32(0), {lanes})
            T.attr(0, "pragma_import_llvm", {total.text!r})
            {sums} = {sums} + T.Cast("float32x{lanes}", T.call_pure_extern(
                "int32x{lanes}",
                "{total.name}",
                {start},
                T.address_of(w[vj, vk, 0]),
                {inputs}1),
            )) * (T.broadcast(d[{row}, vk], {lanes}) * s[{of_lanes}])
{"" if is_full else graph_rewriting.format_result_copy((*product.rows, outputs))}""")


MAX_ROWS, ROWS = 16, 8  # rows of a tile
MAX_CHUNKS, CHUNKS = 1 << 20, 16  # vectors of columns in the part of one core
PARTS = 16  # least number of parts, so that all cores have work
SHARED = 1 << 10  # blocks of inputs from which on cores share their quantisation


def schedule_blocks(schedule: Any, block: Any) -> list[Any]:
    """Schedule loops (from the outside): column parts, row tiles, vectors, blocks, rows."""
    (split,) = (producer for producer in schedule.get_producers(block))
    schedule = graph_rewriting.inline_all_but(schedule, [split, block])
    loops = schedule.get_loops(split)
    if prod(graph_rewriting.extent_of(schedule, loop) for loop in loops) >= SHARED and len(loops) > 1:
        schedule.parallel(schedule.fuse(*loops[:-1]))
    for loop in schedule.get_loops(split):
        schedule.annotate(loop, RULE, 1)
    followers = schedule.get_consumers(block)
    *outer_loops, rows, columns, block_loop = schedule.get_loops(block)
    chunks = max(1, min(CHUNKS, graph_rewriting.extent_of(schedule, columns) // PARTS))
    parts, vectors = graph_rewriting.split_in_two(schedule, columns, MAX_CHUNKS, chunks)
    tiles, rows = graph_rewriting.split_in_two(schedule, rows, MAX_ROWS, ROWS)
    schedule.reorder(parts, *outer_loops, tiles, vectors, block_loop, rows)
    last = followers[0] if followers else schedule.cache_write(block, 0, "global")
    schedule.reverse_compute_at(last, vectors, preserve_unit_loops=True)
    schedule.vectorize(schedule.get_loops(last)[-1])
    schedule.parallel(parts)
    schedule.unroll(rows)
    for loop in schedule.get_loops(block):
        schedule.annotate(loop, RULE, 1)  # so that TVM does not split the loop again
    schedule.annotate(block, graph_rewriting.SUGGESTS, 1)
    return [schedule]


tvm.register_global_func(f"s_tir.meta_schedule.cpu.{RULE}", schedule_blocks, override=True)
