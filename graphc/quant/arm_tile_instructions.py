"""Multiply tiles of bytes by aarch64's SMMLA and USMMLA, as LLVM functions.

An instruction adds the products of two rows and two columns of eight bytes to four sums,
twice as many as SDOT. Sixteen of them share the rows and columns that they read, so sums of
eight rows and eight columns stay in registers. Rows beyond the last repeat the last one.
"""

from dataclasses import dataclass
from itertools import product
from typing import Final

from mallorn.graphc.quant.dot_product_function import DotInstruction
from mallorn.graphc.quant.tile_instruction import (
    ALLOWED,
    COLUMNS,
    FACTORS,
    PARAMETERS,
    RULE,
    TileInstruction,
)

TERMS: Final = 8  # bytes of a row that the instruction multiplies
BLOCK, PAIR, QUAD = 8, 2, 4  # rows and columns summed together, those of an instruction, and sums of a vector
_SUM_BYTES: Final = 4
_PAIRS: Final = range(BLOCK // PAIR)
_SUMS: Final = [f"{row}{column}" for row, column in product(_PAIRS, _PAIRS)]


@dataclass(frozen=True)
class MatrixInstruction(TileInstruction):
    """An instruction that multiplies two rows with two columns."""

    @property
    def text(self) -> str:
        """The LLVM text: loops over both tiles of data, their blocks of rows, and blocks of columns.

        LLVM would unroll inner loops of short rows, and spill.
        """
        intrinsic = f"@llvm.aarch64.neon.{self.intrinsic}.v4i32.v16i8"
        return f"""
declare <4 x i32> {intrinsic}(<4 x i32>, <16 x i8>, <16 x i8>)
declare i32 @llvm.smin.i32(i32, i32)
define linkonce_odr i32 @{ALLOWED}() {{
  ret i32 1
}}
define linkonce_odr void @{self.function}({PARAMETERS})
    alwaysinline nounwind "target-features"="+neon,+{self.feature}" {{
begin:
  %run = mul i64 %steps, %wide
  br label %tile
tile:
  %is.first = phi i1 [ true, %begin ], [ false, %tile.end ]
  %x = select i1 %is.first, ptr %x0, ptr %x1
  %z = select i1 %is.first, ptr %z0, ptr %z1
  %rows = select i1 %is.first, i32 %rows0, i32 %rows1
  %last = sub i32 %rows, 1
  br label %rows.begin
rows.begin:
  %first = phi i32 [ 0, %tile ], [ %first.next, %rows.end ]
{"".join(map(_format_row, range(BLOCK)))}
  br label %columns
columns:
  %column = phi i64 [ 0, %rows.begin ], [ %column.next, %columns.end ]
  %is.left = icmp ult i64 %column, {COLUMNS // BLOCK}
  %w.tile = select i1 %is.left, ptr %w0, ptr %w1
  %part = urem i64 %column, {COLUMNS // BLOCK}
  %w.far = mul i64 %part, {BLOCK * TERMS}
  %w = getelementptr i8, ptr %w.tile, i64 %w.far
  %z.far = mul i64 %column, {BLOCK * _SUM_BYTES}
  br label %window
window:
  %place = phi i64 [ 0, %columns ], [ %place.next, %window.end ]
  %w.first = phi ptr [ %w, %columns ], [ %w.next, %window.end ]
{_format_phis("start", "zeroinitializer", "columns", "window.end")}
  %k.first = mul i64 %place, %x.place
  %k.end = add i64 %k.first, %run
  br label %step
step:
  %k = phi i64 [ %k.first, %window ], [ %k.next, %step ]
  %w.k = phi ptr [ %w.first, %window ], [ %w.next, %step ]
{_format_phis("sum", "%start", "window", "step")}
{"".join(map(_format_loads, _PAIRS))}
{"".join(_format_product(intrinsic, row, column) for row, column in product(_PAIRS, _PAIRS))}
  %k.next = add i64 %k, {TERMS}
  %w.next = getelementptr i8, ptr %w.k, i64 {TERMS * COLUMNS}
  %more = icmp slt i64 %k.next, %k.end
  br i1 %more, label %step, label %window.end, !llvm.loop !0
window.end:
  %place.next = add i64 %place, 1
  %places.left = icmp ult i64 %place.next, %places
  br i1 %places.left, label %window, label %columns.end, !llvm.loop !1
columns.end:
{"".join(_format_store(row, part) for row, part in product(range(BLOCK), range(BLOCK // QUAD)))}
  %column.next = add i64 %column, 1
  %columns.left = icmp ult i64 %column.next, {FACTORS * COLUMNS // BLOCK}
  br i1 %columns.left, label %columns, label %rows.end, !llvm.loop !2
rows.end:
  %first.next = add i32 %first, {BLOCK}
  %rows.left = icmp slt i32 %first.next, %rows
  br i1 %rows.left, label %rows.begin, label %tile.end, !llvm.loop !3
tile.end:
  br i1 %is.first, label %tile, label %end, !llvm.loop !4
end:
  ret void
}}
{"".join(f"!{loop} = distinct !{{!{loop}, !5}}{chr(10)}" for loop in range(5))}
!5 = !{{!"llvm.loop.unroll.disable"}}
"""


def _format_row(row: int) -> str:
    """Return addresses of a row of data and of sums; rows after the last are the last one."""
    return f"""
  %at{row} = add i32 %first, {row}
  %row{row} = call i32 @llvm.smin.i32(i32 %at{row}, i32 %last)
  %wide{row} = zext i32 %row{row} to i64
  %x.far{row} = mul i64 %wide{row}, %x.row
  %x.row{row} = getelementptr i8, ptr %x, i64 %x.far{row}
  %z.far{row} = mul i64 %wide{row}, %z.row
  %z.row{row} = getelementptr i8, ptr %z, i64 %z.far{row}"""


def _format_loads(pair: int) -> str:
    """Return loads of two rows' bytes, and of two columns'."""
    halves = "".join(
        f"""
  %x.at{pair}{half} = getelementptr i8, ptr %x.row{pair * PAIR + half}, i64 %k
  %x.of{pair}{half} = load i64, ptr %x.at{pair}{half}, align 1"""
        for half in range(PAIR)
    )
    return f"""{halves}
  %x.first{pair} = insertelement <2 x i64> poison, i64 %x.of{pair}0, i32 0
  %x.both{pair} = insertelement <2 x i64> %x.first{pair}, i64 %x.of{pair}1, i32 1
  %data{pair} = bitcast <2 x i64> %x.both{pair} to <16 x i8>
  %w.at{pair} = getelementptr i8, ptr %w.k, i64 {pair * PAIR * TERMS}
  %weights{pair} = load <16 x i8>, ptr %w.at{pair}, align 16"""


def _format_product(intrinsic: str, row: int, column: int) -> str:
    name = f"{row}{column}"
    factors = f"<16 x i8> %data{row}, <16 x i8> %weights{column}"
    return f"""
  %out{name} = call <4 x i32> {intrinsic}(<4 x i32> %sum{name}, {factors})"""


def _format_store(row: int, part: int) -> str:
    """Return the store of a row's four sums, which lie in two vectors."""
    first = row % PAIR * PAIR
    lanes = ", ".join(f"i32 {lane}" for lane in (first, first + 1, first + QUAD, first + QUAD + 1))
    left, right = (f"<4 x i32> %out{row // PAIR}{2 * part + side}" for side in (0, 1))
    return f"""
  %z.block{row}{part} = getelementptr i8, ptr %z.row{row}, i64 %z.far
  %z.at{row}{part} = getelementptr i8, ptr %z.block{row}{part}, i64 {part * QUAD * _SUM_BYTES}
  %z.of{row}{part} = shufflevector {left}, {right}, <4 x i32> <{lanes}>
  store <4 x i32> %z.of{row}{part}, ptr %z.at{row}{part}, align 4"""


def _format_phis(name: str, first: str, before: str, loop: str) -> str:
    """Return the sums at the beginning of a loop: `first`, and later those of its last products."""
    starts = (first + sums if first.startswith("%") else first for sums in _SUMS)
    return "\n".join(
        f"  %{name}{sums} = phi <4 x i32> [ {start}, %{before} ], [ %out{sums}, %{loop} ]"
        for sums, start in zip(_SUMS, starts, strict=True)
    )


INSTRUCTIONS: Final = tuple(
    MatrixInstruction("i8mm", intrinsic, DotInstruction(RULE, COLUMNS, TERMS, data, "int8", "int32"))
    for intrinsic, data in (("usmmla", "uint8"), ("smmla", "int8"))
)
