"""Multiply tiles of 16 rows with 64 bytes by x86's AMX instructions, as LLVM functions.

Linux grants tile registers to a process only on request. The code requests them once,
wherever it is loaded; if they are refused, callers compute without tiles.
"""

from dataclasses import dataclass
from typing import Final

from mallorn.graphc.quant.dot_product_function import DotInstruction
from mallorn.graphc.quant.tile_instruction import ALLOWED, BYTES, COLUMNS, PARAMETERS, RULE, TileInstruction

# 4131 is ARCH_REQ_XCOMP_PERM of arch_prctl, 18 the tile state. Answers: 1 for yes, 2 for no.
_ASKING = f"""
@{ALLOWED}_answer = linkonce_odr global i32 0
define linkonce_odr i32 @{ALLOWED}() nounwind {{
  %known = load atomic i32, ptr @{ALLOWED}_answer monotonic, align 4
  %asked = icmp ne i32 %known, 0
  br i1 %asked, label %done, label %ask
ask:
  %said = call i64 asm sideeffect "syscall", "={{rax}},{{rax}},{{rdi}},{{rsi}},~{{rcx}},~{{r11}},~{{memory}}"(
    i64 158, i64 4131, i64 18)
  %yes = icmp eq i64 %said, 0
  %found = select i1 %yes, i32 1, i32 2
  store atomic i32 %found, ptr @{ALLOWED}_answer monotonic, align 4
  br label %done
done:
  %answer = phi i32 [ %known, %0 ], [ %found, %ask ]
  %may = icmp eq i32 %answer, 1
  %out = zext i1 %may to i32
  ret i32 %out
}}
"""
_ROWS = {"sums and data above": (0, 1, 4), "below": (2, 3, 5), "weights": (6, 7)}  # tiles by number of rows


@dataclass(frozen=True)
class AmxInstruction(TileInstruction):
    """An instruction that multiplies registers of tiles."""

    @property
    def text(self) -> str:
        """The LLVM text of the function: tiles 0-3 are sums, 4-5 data, 6-7 weights.

        The tile configuration has two bytes per tile for row length, one for row count.
        """
        first, second, third = (sum(1 << 8 * tile for tile in tiles) for tiles in _ROWS.values())
        sums, weights = (sum(BYTES << 16 * tile for tile in tiles) for tiles in ((0, 1, 2, 3), (2, 3)))
        return (
            _ASKING
            + f"""
declare void @llvm.x86.ldtilecfg(ptr)
declare void @llvm.x86.tilerelease()
declare void @llvm.x86.tileloadd64(i8, ptr, i64)
declare void @llvm.x86.tilestored64(i8, ptr, i64)
declare void @llvm.x86.{self.intrinsic}(i8, i8, i8)
define linkonce_odr void @{self.function}({PARAMETERS})
    alwaysinline nounwind "target-features"="+amx-tile,+{self.feature}" {{
begin:
  %config = alloca [64 x i8], align 64
  store <64 x i8> zeroinitializer, ptr %config, align 64
  store i8 1, ptr %config, align 64
  %of.sums = getelementptr i8, ptr %config, i64 16
  store i64 {sums}, ptr %of.sums, align 8
  %of.factors = getelementptr i8, ptr %config, i64 24
  %wides = mul i64 %wide, 65537
  %bytes = add i64 %wides, {weights}
  store i64 %bytes, ptr %of.factors, align 8
  %of.rows = getelementptr i8, ptr %config, i64 48
  %rows.above = zext i32 %rows0 to i64
  %rows.below = zext i32 %rows1 to i64
  %rows.first = mul i64 %rows.above, {first}
  %rows.second = mul i64 %rows.below, {second}
  %rows.data = add i64 %rows.first, %rows.second
  %quads = lshr i64 %wide, 2
  %rows.weights = mul i64 %quads, {third}
  %rows = add i64 %rows.data, %rows.weights
  store i64 %rows, ptr %of.rows, align 16
  call void @llvm.x86.ldtilecfg(ptr %config)
  %w.step = shl i64 %wide, 4
  br label %window
window:
  %place = phi i64 [ 0, %begin ], [ %place.next, %done ]
  %w.first = phi i64 [ 0, %begin ], [ %w.next, %done ]
  %x.first = mul i64 %place, %x.place
  br label %step
step:
  %at = phi i64 [ 0, %window ], [ %at.next, %step ]
  %x.at = phi i64 [ %x.first, %window ], [ %x.next, %step ]
  %w.at = phi i64 [ %w.first, %window ], [ %w.next, %step ]
  %x0.at = getelementptr i8, ptr %x0, i64 %x.at
  %x1.at = getelementptr i8, ptr %x1, i64 %x.at
  %w0.at = getelementptr i8, ptr %w0, i64 %w.at
  %w1.at = getelementptr i8, ptr %w1, i64 %w.at
  call void @llvm.x86.tileloadd64(i8 4, ptr %x0.at, i64 %x.row)
  call void @llvm.x86.tileloadd64(i8 6, ptr %w0.at, i64 64)
  call void @llvm.x86.tileloadd64(i8 7, ptr %w1.at, i64 64)
  call void @llvm.x86.tileloadd64(i8 5, ptr %x1.at, i64 %x.row)
  call void @llvm.x86.{self.intrinsic}(i8 0, i8 4, i8 6)
  call void @llvm.x86.{self.intrinsic}(i8 1, i8 4, i8 7)
  call void @llvm.x86.{self.intrinsic}(i8 2, i8 5, i8 6)
  call void @llvm.x86.{self.intrinsic}(i8 3, i8 5, i8 7)
  %at.next = add i64 %at, 1
  %x.next = add i64 %x.at, %wide
  %w.next = add i64 %w.at, %w.step
  %more = icmp ult i64 %at.next, %steps
  br i1 %more, label %step, label %done
done:
  %place.next = add i64 %place, 1
  %others = icmp ult i64 %place.next, %places
  br i1 %others, label %window, label %end
end:
  %z0.right = getelementptr i8, ptr %z0, i64 64
  %z1.right = getelementptr i8, ptr %z1, i64 64
  call void @llvm.x86.tilestored64(i8 0, ptr %z0, i64 %z.row)
  call void @llvm.x86.tilestored64(i8 1, ptr %z0.right, i64 %z.row)
  call void @llvm.x86.tilestored64(i8 2, ptr %z1, i64 %z.row)
  call void @llvm.x86.tilestored64(i8 3, ptr %z1.right, i64 %z.row)
  call void @llvm.x86.tilerelease()
  ret void
}}
"""
        )


INT8: Final = AmxInstruction(
    "amx-int8", "tdpbusd", DotInstruction(RULE, COLUMNS, 4, "uint8", "int8", "int32")
)
BF16: Final = AmxInstruction(
    "amx-bf16", "tdpbf16ps", DotInstruction(RULE, COLUMNS, 2, "bfloat16", "bfloat16", "float32")
)
