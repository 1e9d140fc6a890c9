"""Choose the target's instruction for products of bytes, among those of all instruction sets."""

from typing import Final

import tvm
from tvm.target.codegen import target_has_features

from mallorn.graphc.core.graph_pass import Leave
from mallorn.graphc.quant import arm_int8_instructions, x86_int8_instructions
from mallorn.graphc.quant.dot_product_function import DotInstruction

# By required feature of LLVM, the best of each instruction set first.
INSTRUCTIONS: Final = x86_int8_instructions.INSTRUCTIONS | arm_int8_instructions.INSTRUCTIONS


def best_instruction(target: tvm.target.Target | None, data: str = "") -> DotInstruction | None:
    """Return the target's best instruction for products of bytes, or None. One that reads
    data of this type comes before better ones that read another type."""
    if target is None or target.kind.name != "llvm":
        return None
    usable = [dot for feature, dot in INSTRUCTIONS.items() if target_has_features(feature, target)]
    return next((dot for dot in usable if dot.data == data), usable[0] if usable else None)


def required_instruction(data: str = "") -> DotInstruction:
    """Return the current target's best instruction likewise. Raises Leave if it has none."""
    instruction = best_instruction(tvm.target.Target.current(), data)
    if instruction is None:
        raise Leave("the target has no instruction for 8-bit dot products")
    return instruction
