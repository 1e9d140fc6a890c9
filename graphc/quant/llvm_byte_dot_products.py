"""Sum products of unsigned weight bytes and signed input bytes per block, in LLVM.

Each float input becomes an integer of 13 to 15 bits in two bytes, with a scale per block.
"""

import struct
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np
import tvm
from tvm.target.codegen import target_has_features

from mallorn.graphc.quant import arm_int8_instructions
from mallorn.graphc.quant.dot_product_function import QUAD

NIBBLES, BYTES = 4, 8  # bits of a weight
_QUADS = "mallorn_quads"  # name of the function that wraps the instruction
_LEAST = 1e-30  # a block whose largest input is smaller counts as zeros


@dataclass(frozen=True)
class Instruction:
    """A sequence of one or three instructions that adds four products of bytes to each lane."""

    features: str
    lanes: int
    steps: tuple[str, ...]
    most_bits: int = BYTES  # of a weight, fewer if it is read with a sign
    format_function: Callable[[str], str] | None = None  # takes a name; None for x86

    def largest_upper_byte(self, bits: int) -> int:
        """Return the largest upper byte of inputs: pairs of products fit in 16 bits."""
        return 64 if bits == BYTES and len(self.steps) > 1 else 127

    def lower_byte_bits(self, bits: int) -> int:
        return 8 if self.largest_upper_byte(bits) == 127 else 7

    def largest_quantized_input(self, bits: int) -> int:
        """Return the largest integer that represents an input."""
        low = self.lower_byte_bits(bits)
        return (self.largest_upper_byte(bits) << low) + (1 << (low - 1)) - 1


# By required feature, the best first.
INSTRUCTIONS = {
    "avx512vnni": Instruction("+avx512f,+avx512vnni", 16, ("avx512.vpdpbusd.512",)),
    "avxvnni": Instruction("+avx2,+avxvnni", 8, ("avx512.vpdpbusd.256",)),
    "avx512bw": Instruction("+avx512f,+avx512bw", 16, ("avx512.pmaddubs.w.512", "avx512.pmaddw.d.512")),
    "avx2": Instruction("+avx2", 8, ("avx2.pmadd.ub.sw", "avx2.pmadd.wd")),
    **{
        feature: Instruction(
            f"+neon,+{feature}",
            arm_int8_instructions.LANES,
            (name,),
            most_bits,
            partial(arm_int8_instructions.format_dot, feature=feature, instruction=name),
        )
        for feature, name, most_bits in (("i8mm", "usdot", BYTES), ("dotprod", "sdot", NIBBLES))
    },
}


def best_instruction() -> Instruction | None:
    target = tvm.target.Target.current()
    if target is None or target.kind.name != "llvm":
        return None
    return next((entry for name, entry in INSTRUCTIONS.items() if target_has_features(name, target)), None)


@dataclass(frozen=True)
class Function:
    name: str
    text: str


def build_quad_function(instruction: Instruction) -> Function:
    """Build the function that adds products of unsigned and signed bytes to sums."""
    return Function(f"{_QUADS}_{instruction.lanes}", _multiply(instruction))


def best_quad_function(lanes: int) -> Function | None:
    """Return it for the target's vectors; None without an instruction that is exact."""
    best = best_instruction()
    is_exact = best is not None and best.lanes == lanes and len(best.steps) == 1 and best.most_bits == BYTES
    return build_quad_function(best) if best and is_exact else None


def build_input_quantizer(instruction: Instruction, block: int, bits: int) -> Function:
    """Build the function that makes two bytes of each float in a block, scale and sum."""
    low = instruction.lower_byte_bits(bits)
    name = f"mallorn_split_{block}_{low}"
    reals, wholes = f"<{block} x float>", f"<{block} x i32>"
    largest_integer = _real(instruction.largest_quantized_input(bits))
    return Function(
        name,
        f"""
declare i32 @llvm.vector.reduce.umax.v{block}i32({wholes})
declare i32 @llvm.vector.reduce.add.v{block}i32({wholes})
declare {reals} @llvm.rint.v{block}f32({reals})
define linkonce_odr void @{name}(ptr %x, ptr %bytes, ptr %worth, ptr %total)
    alwaysinline nounwind{_features(instruction)} {{
  %given = load {reals}, ptr %x, align 4
  %bits = bitcast {reals} %given to {wholes}
  %sizes = and {wholes} %bits, {_format_vector_constant("i32", block, 0x7FFFFFFF)}
  %size = call i32 @llvm.vector.reduce.umax.v{block}i32({wholes} %sizes)
  %largest = bitcast i32 %size to float
  %none = fcmp olt float %largest, {_real(_LEAST)}
  %most = fdiv float {largest_integer}, %largest
  %factor = select i1 %none, float 0.0, float %most
  %one = fdiv float %largest, {largest_integer}
  %first = insertelement {reals} poison, float %factor, i32 0
  %factors = shufflevector {reals} %first, {reals} poison, <{block} x i32> zeroinitializer
  %scaled = fmul {reals} %given, %factors
  %rounded = call {reals} @llvm.rint.v{block}f32({reals} %scaled)
  %numbers = fptosi {reals} %rounded to {wholes}
  %sum = call i32 @llvm.vector.reduce.add.v{block}i32({wholes} %numbers)
  %moved = add {wholes} %numbers, {_format_vector_constant("i32", block, 1 << (low - 1))}
  %high = ashr {wholes} %moved, {_format_vector_constant("i32", block, low)}
  %back = shl {wholes} %high, {_format_vector_constant("i32", block, low)}
  %low = sub {wholes} %numbers, %back
  %upper = trunc {wholes} %high to <{block} x i8>
  %lower = trunc {wholes} %low to <{block} x i8>
  store <{block} x i8> %upper, ptr %bytes, align 1
  %behind = getelementptr i8, ptr %bytes, i64 {block}
  store <{block} x i8> %lower, ptr %behind, align 1
  store float %one, ptr %worth, align 4
  store i32 %sum, ptr %total, align 4
  ret void
}}
""",
    )


def build_block_dot_product(instruction: Instruction, block: int, bits: int) -> Function:
    """Build the function that adds up a block's weights times its input bytes, per lane."""
    lanes, low = instruction.lanes, instruction.lower_byte_bits(bits)
    name, vector = f"mallorn_block_{bits}_{block}_{lanes}_{low}", f"<{lanes} x i32>"
    body = _Body(instruction)
    inputs_per_step = QUAD * BYTES // bits
    for step in range(block // inputs_per_step):
        weights = body.load(step * QUAD * lanes)
        for half, numbers in enumerate(body.nibbles(weights) if bits == NIBBLES else [weights]):
            for part in (0, 1):
                chain = half if bits == NIBBLES else step % 2
                body.add((part, chain), numbers, part * block + step * inputs_per_step + half * QUAD)
    upper, lower = body.append_chain_sum(0), body.append_chain_sum(1)
    shifted = body.append_value(f"shl {vector} {upper}, {_format_vector_constant('i32', lanes, low)}")
    sums = body.append_value(f"add {vector} {shifted}, {lower}")
    result = body.append_value(f"add {vector} {sums}, %start")
    return Function(
        name,
        f"""
{_multiply(instruction)}
define linkonce_odr {vector} @{name}({vector} %start, ptr %w, ptr %x)
    alwaysinline nounwind{_features(instruction)} {{
  {f"{chr(10)}  ".join(body.lines)}
  ret {vector} {result}
}}
!0 = !{{}}
""",
    )


class _Body:
    """Collects lines of an LLVM function that adds up products in independent chains."""

    def __init__(self, instruction: Instruction) -> None:
        self.lines: list[str] = []
        self._instruction = instruction
        self._vector = f"<{instruction.lanes} x i32>"
        self._chains: dict[tuple[int, int], str] = {}

    def append_value(self, value: str) -> str:
        name = f"%v{len(self.lines)}"
        self.lines.append(f"{name} = {value}")
        return name

    def load(self, place: int) -> str:
        """Append a load of weights, marked invariant: LLVM reuses it for several rows."""
        pointer = self.append_value(f"getelementptr i8, ptr %w, i64 {place}")
        return self.append_value(f"load {self._vector}, ptr {pointer}, align 16, !invariant.load !0")

    def nibbles(self, weight_bytes: str) -> list[str]:
        """Append code that splits bytes into their lower and upper 4-bit numbers."""
        mask = _format_vector_constant("i32", self._instruction.lanes, 0x0F0F0F0F)
        shift = _format_vector_constant("i32", self._instruction.lanes, NIBBLES)
        upper = self.append_value(f"lshr {self._vector} {weight_bytes}, {shift}")
        return [self.append_value(f"and {self._vector} {value}, {mask}") for value in (weight_bytes, upper)]

    def add(self, chain: tuple[int, int], weights: str, place: int) -> None:
        """Append code that adds weights times four inputs to a chain of sums."""
        pointer = self.append_value(f"getelementptr i8, ptr %x, i64 {place}")
        quad = self.append_value(f"load i32, ptr {pointer}, align 4")
        vector, name = self._vector, f"@{_QUADS}_{self._instruction.lanes}"
        first = self.append_value(f"insertelement {vector} poison, i32 {quad}, i32 0")
        broadcast = f"shufflevector {vector} {first}, {vector} poison, {vector} zeroinitializer"
        inputs, previous = self.append_value(broadcast), self._chains.get(chain, "zeroinitializer")
        arguments = f"{vector} {previous}, {vector} {weights}, {vector} {inputs}"
        self._chains[chain] = self.append_value(f"call {vector} {name}({arguments})")

    def append_chain_sum(self, part: int) -> str:
        """Append code that adds up all chains of the upper (0) or lower (1) bytes."""
        result, *chains = (chain for (chain_part, _), chain in self._chains.items() if chain_part == part)
        for chain in chains:
            result = self.append_value(f"add {self._vector} {result}, {chain}")
        return result


def _multiply(instruction: Instruction) -> str:
    """Return an LLVM function for the instruction; without VNNI, it sums pairs first."""
    lanes = instruction.lanes
    if instruction.format_function is not None:
        return instruction.format_function(f"{_QUADS}_{lanes}")
    vector, pairs, singles = f"<{lanes} x i32>", f"<{2 * lanes} x i16>", f"<{4 * lanes} x i8>"
    head = f"""
define linkonce_odr {vector} @{_QUADS}_{lanes}({vector} %sums, {vector} %w, {vector} %x)
    alwaysinline nounwind{_features(instruction)} {{"""
    if len(instruction.steps) == 1:
        (at_once,) = instruction.steps
        return f"""
declare {vector} @llvm.x86.{at_once}({vector}, {vector}, {vector})
{head}
  %out = call {vector} @llvm.x86.{at_once}({vector} %sums, {vector} %w, {vector} %x)
  ret {vector} %out
}}"""
    multiply, add = instruction.steps
    ones = _format_vector_constant("i16", 2 * lanes, 1)
    return f"""
declare {pairs} @llvm.x86.{multiply}({singles}, {singles})
declare {vector} @llvm.x86.{add}({pairs}, {pairs})
{head}
  %weights = bitcast {vector} %w to {singles}
  %inputs = bitcast {vector} %x to {singles}
  %pairs = call {pairs} @llvm.x86.{multiply}({singles} %weights, {singles} %inputs)
  %quads = call {vector} @llvm.x86.{add}({pairs} %pairs, {pairs} {ones})
  %out = add {vector} %sums, %quads
  ret {vector} %out
}}"""


def make_portable(text: str) -> str:
    """Return LLVM text for any processor, with the same results."""
    for instruction in INSTRUCTIONS.values():
        lanes = instruction.lanes
        vector, singles, wide = f"<{lanes} x i32>", f"<{4 * lanes} x i8>", f"<{4 * lanes} x i32>"
        steps = []
        for part in range(QUAD):
            places = ", ".join(f"i32 {QUAD * lane + part}" for lane in range(lanes))
            steps.append(f"""
  %part{part} = shufflevector {wide} %products, {wide} poison, <{lanes} x i32> <{places}>
  %sum{part + 1} = add {vector} %sum{part}, %part{part}""")
        function = f"""
define linkonce_odr {vector} @{_QUADS}_{lanes}({vector} %sum0, {vector} %w, {vector} %x)
    alwaysinline nounwind {{
  %weights = bitcast {vector} %w to {singles}
  %inputs = bitcast {vector} %x to {singles}
  %without = zext {singles} %weights to {wide}
  %with = sext {singles} %inputs to {wide}
  %products = mul {wide} %without, %with
{"".join(steps)}
  ret {vector} %sum{QUAD}
}}"""
        text = text.replace(_multiply(instruction), function).replace(_features(instruction), "")
    return text


def _features(instruction: Instruction) -> str:
    return f' "target-features"="{instruction.features}"'


def _format_vector_constant(kind: str, count: int, value: int) -> str:
    return "<" + ", ".join([f"{kind} {value}"] * count) + ">"


def _real(value: float) -> str:
    """Return a float32 number in LLVM's exact notation."""
    return "0x" + struct.pack(">d", float(np.float32(value))).hex().upper()
