"""Tensor-core instructions that TVM has for some types only: int8 in dynamic shared memory, bfloat16.

Importing the module registers them. `own_name` returns the name of an instruction that
`get_mma_intrin_group` names for a type, and that is ours.
"""

from typing import Final

import tvm
from tvm.s_tir import TensorIntrin
from tvm.s_tir.tensor_intrin.cuda import (
    get_ldmatrix_intrin,
    get_mma_fill_intrin,
    get_mma_store_intrin,
)

from mallorn.graphc.core.graph_rewriting import parse_tvmscript

PREFIX: Final = "mallorn_mma_"
FILL: Final = f"{PREFIX}fill_16x16_f32"
_DYNAMIC: Final = "shared.dyn"


def own_name(name: str, dtype: str) -> str:
    """Return the name of the instruction `name` of TVM for operands of this type.

    bfloat16 instructions are asked for by the names of float16.
    """
    if dtype == "bfloat16" and "f16" in name:
        return f"{PREFIX}{name.replace('f16', 'bf16').removeprefix('mma_')}"
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
# TVM 0.27 lowers the registers of a warp to those of a thread for a kernel's first buffer only,
# and its `mma_fill_16x16_f32` writes the wrong registers of all further ones.
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
