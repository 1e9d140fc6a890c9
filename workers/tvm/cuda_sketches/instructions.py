"""Tensor-core instructions that TVM has for some types only: int8 in dynamic shared memory, bfloat16."""

from typing import Final

import tvm
from tvm.s_tir import TensorIntrin
from tvm.s_tir.tensor_intrin.cuda import get_ldmatrix_intrin, get_mma_store_intrin

_DYNAMIC: Final = "shared.dyn"


for _operand, _suffix in (("A", ""), ("B", "_trans")):
    TensorIntrin.register(
        f"mma_ldmatrix_i8_{_operand.lower()}{_suffix}_dyn",
        *get_ldmatrix_intrin(32, "int8", _operand, bool(_suffix), _DYNAMIC),
    )
TensorIntrin.register(
    "mma_store_16x16_i32_shared_dyn_simple_", *get_mma_store_intrin("int32", 8, _DYNAMIC, False)
)
for _name in (
    *(f"mma_ldmatrix_f16_{operand}{suffix}_dyn" for operand in "ab" for suffix in ("", "_trans")),
    *(f"mma_f16f16f32{a}{b}" for a in ("", "_trans_a") for b in ("", "_trans_b")),
):
    _half = TensorIntrin.get(_name)
    _texts = [tvm.ir.save_json(function) for function in (_half.desc, _half.impl)]
    _texts = [text.replace("float16", "bfloat16").replace('"fp16"', '"bf16"') for text in _texts]
    TensorIntrin.register(_name.replace("f16", "bf16"), *map(tvm.ir.load_json, _texts))
