"""Tensor-core instructions that TVM lacks: int8 in dynamic shared memory, bfloat16 and TF32.

Importing the module registers them. `own_name` returns the name of an instruction that
``get_mma_intrin_group`` names for a type, and that is ours.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, Final

import tvm
from tvm.s_tir import TensorIntrin
from tvm.s_tir.tensor_intrin.cuda import (
    get_ldmatrix_intrin,
    get_mma_fill_intrin,
    get_mma_store_intrin,
    shared_16x16_to_ldmatrix_32x8_layout,
)
from tvm.script import from_source
from tvm.script import tirx as T

from mallorn.graphc.core.graph_rewriting import parse_tvmscript
from mallorn.graphc.quant.tf32_products import round_to_tf32

PREFIX: Final = "mallorn_mma_"
FILL: Final = f"{PREFIX}fill_16x16_f32"
_DYNAMIC: Final = "shared.dyn"
_SHORT: Final = {"bfloat16": "bf16", "tfloat32": "tf32"}
_ROUND: Final = """__forceinline__ __device__ float mallorn_tf32(float value) {
  unsigned bits; asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(bits) : "f"(value)); return __uint_as_float(bits);
}
"""
#: The parts of a load and a product of fragments of TF32, as TVMScript. A lane holds 4 factors.
_WARP: Final = 'T.match_buffer({0}_, (32, {1}), offset_factor={1}, scope="warp")'
_LOAD: Final = f"""@T.prim_func(s_tir=True)
def load(warp_: T.handle, shared_: T.handle) -> None:
    stride, unit = T.int32(), T.int32()
    shared = T.match_buffer(shared_, (rows, columns), offset_factor=columns, scope="{_DYNAMIC}"%s)
    warp = {_WARP.format("warp", 4)}
    with T.sblock("root"):
        T.reads(shared[0:rows, 0:columns])
        T.writes(warp[0:32, 0:4])
"""
_COPY: Final = """
        for i, j in T.grid(rows, columns):
            with T.sblock("load"):
                row, column = T.axis.remap("SS", [i, j])
                lane, number = T.meta_var(place(row, column))
                T.reads(shared[row, column])
                T.writes(warp[lane, number])
                warp[lane, number] = shared[row, column]
"""
_BY_ELEMENT: Final = """
        for lane in T.thread_binding(32, thread="threadIdx.x"):
            for number in T.unroll(4):
                row, column = T.meta_var(element(lane, number))
                warp[lane, number] = rounded(shared[row, column])
"""
_BY_MATRIX: Final = """
        for lane in T.thread_binding(32, thread="threadIdx.x"):
            row, column = T.meta_var(element(lane % 8 * 4, lane // 8))
            T.evaluate(T.ptx_legacy.ldmatrix(
                False, 4, ".b16", warp.data, warp.elem_offset + 4 * lane,
                shared.access_ptr("r"), row * stride + column, dtype="float32",
            ))
            for number in T.unroll(4):
                warp[lane, number] = rounded(warp[lane, number])
"""
_PRODUCT: Final = f"""@T.prim_func(s_tir=True)
def product(left_: T.handle, right_: T.handle, sums_: T.handle) -> None:
    left = {_WARP.format("left", 4)}
    right = {_WARP.format("right", 4)}
    sums = {_WARP.format("sums", 8)}
    with T.sblock("root"):
        T.reads(sums[0:32, 0:8], left[0:32, 0:4], right[0:32, 0:4])
        T.writes(sums[0:32, 0:8])
"""
_MULTIPLY_AND_ADD: Final = """
        for i, j, k in T.grid(16, 16, 8):
            with T.sblock("product"):
                row, column, depth = T.axis.remap("SSR", [i, j, k])
                x, y = T.meta_var(sum_place(row, column))
                lane, number = T.meta_var(left_place(row, depth))
                right_lane, right_number = T.meta_var(right_place(column, depth))
                T.reads(sums[x, y], left[lane, number], right[right_lane, right_number])
                T.writes(sums[x, y])
                sums[x, y] += rounded(left[lane, number]) * rounded(right[right_lane, right_number])
"""
_MMA: Final = """
        for lane in T.thread_binding(32, thread="threadIdx.x"):
            for half in T.unroll(2):
                T.evaluate(T.ptx_legacy.mma(
                    "m16n8k8", "row", "col", "tf32", "tf32", "fp32",
                    left.data, left.elem_offset + lane * 4,
                    right.data, right.elem_offset + lane * 4 + half * 2,
                    sums.data, sums.elem_offset + lane * 8 + half * 4, False, dtype="float32",
                ))
"""


def own_name(name: str, dtype: str) -> str:
    """Return the name of the instruction `name` of TVM for operands of this type.

    bfloat16 and TF32 instructions are asked for by the names of float16.
    """
    if dtype in _SHORT and "f16" in name:
        return f"{PREFIX}{name.replace('f16', _SHORT[dtype]).removeprefix('mma_')}"
    is_ours = dtype == "int8" and ("ldmatrix" in name or "store" in name)
    return f"{PREFIX}{name.removeprefix('mma_')}" if is_ours else name


for _operand, _suffix in (("A", ""), ("B", "_trans")):
    TensorIntrin.register(
        own_name(f"mma_ldmatrix_i8_{_operand.lower()}{_suffix}_dyn", "int8"),
        *get_ldmatrix_intrin(32, "int8", _operand, bool(_suffix), _DYNAMIC),
    )
TensorIntrin.register(
    own_name("mma_store_16x16_i32_shared_dyn_simple_", "int8"),
    *get_mma_store_intrin("int32", 8, _DYNAMIC, False),
)
# TVM 0.27 lowers the registers of a warp to those of a thread for a kernel's first buffer
# only, and its `mma_fill_16x16_f32` writes the wrong registers of all further ones.
TensorIntrin.register(
    FILL,
    get_mma_fill_intrin("float32", 8)[0],
    parse_tvmscript("""
@T.prim_func(s_tir=True)
def main(sums: T.handle) -> None:
    C = T.match_buffer(sums, [32, 8], dtype="float32", scope="warp", offset_factor=1)
    with T.sblock("root"):
        T.reads()
        T.writes(C[0:32, 0:8])
        for tx in T.thread_binding(0, 32, "threadIdx.x"):
            T.evaluate(T.cuda.mma_fill_legacy(8, C.data, C.elem_offset + tx * 8, dtype="float32"))
"""),
)
for _name in (
    *(f"mma_ldmatrix_f16_{operand}{suffix}_dyn" for operand in "ab" for suffix in ("", "_trans")),
    *(f"mma_f16f16f32{a}{b}" for a in ("", "_trans_a") for b in ("", "_trans_b")),
):
    _half = TensorIntrin.get(_name)
    _texts = [tvm.ir.save_json(function) for function in (_half.desc, _half.impl)]
    _texts = [text.replace("float16", "bfloat16").replace('"fp16"', '"bf16"') for text in _texts]
    TensorIntrin.register(own_name(_name, "bfloat16"), *map(tvm.ir.load_json, _texts))


def tf32_layout(index: int, is_depth_innermost: bool) -> tuple[int, int, Callable[..., tuple[Any, Any]]]:
    """Return rows and columns of a factor's fragment of TF32 in shared memory, and which
    lane holds an element of it, at which place. `index` is the factor's."""

    def place(row: Any, column: Any) -> tuple[Any, Any]:
        side, depth = (row, column) if is_depth_innermost else (column, row)
        halves = (side // 8, depth // 4) if index else (depth // 4, side // 8)
        return 4 * (side % 8) + depth % 4, 2 * halves[0] + halves[1]

    return (16, 8, place) if is_depth_innermost else (8, 16, place)


def _tf32_load(index: int, is_depth_innermost: bool) -> list[Any]:
    """Return the description and the implementation of a load of a factor's fragment.

    It rounds what it loads: products round their factors, and so each is rounded once.
    """
    rows, columns, place = tf32_layout(index, is_depth_innermost)

    def element(lane: Any, number: Any) -> tuple[Any, Any]:
        halves = (number // 2, number % 2) if index else (number % 2, number // 2)
        side, depth = lane // 4 + 8 * halves[0], lane % 4 + 4 * halves[1]
        return (side, depth) if is_depth_innermost else (depth, side)

    round_number = partial(T.cuda.func_call, "mallorn_tf32", source_code=_ROUND, return_type="float32")
    names = {"rows": rows, "columns": columns, "place": place, "element": element, "rounded": round_number}
    implementation = _LOAD % ", strides=[stride, unit]" + (_BY_MATRIX if is_depth_innermost else _BY_ELEMENT)
    return [from_source(text, {"T": T, **names}) for text in (_LOAD % "" + _COPY, implementation)]


for _is_row in (True, False):
    for _index, _operand in enumerate("ab"):
        _suffix = "_trans" if _is_row == bool(_index) else ""
        _name = own_name(f"mma_ldmatrix_f16_{_operand}{_suffix}_dyn", "tfloat32")
        TensorIntrin.register(_name, *_tf32_load(_index, _is_row))
_names = {"T": T, "rounded": round_to_tf32, "sum_place": shared_16x16_to_ldmatrix_32x8_layout}
_names |= {f"{side}_place": tf32_layout(index, True)[2] for index, side in enumerate(("left", "right"))}
_product = [from_source(_PRODUCT + text, _names) for text in (_MULTIPLY_AND_ADD, _MMA)]
for _name in (f"mma_f16f16f32{a}{b}" for a in ("", "_trans_a") for b in ("", "_trans_b")):
    TensorIntrin.register(own_name(_name, "tfloat32"), *_product)
