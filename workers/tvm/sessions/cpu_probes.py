"""Build probes: small kernels that measure a CPU's peak, bandwidths and loop overhead."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import tvm
from tvm.target.codegen import target_has_features

from mallorn.core.targets import parse_target
from mallorn.graphc.quant import tile_instruction as tiles
from mallorn.graphc.quant.tile_instructions import instructions_of
from mallorn.workers.host.linker import linker_for
from mallorn.workers.interfaces.hardware_probes import Finds, Probe
from mallorn.workers.interfaces.tensor_arguments import Arguments, Tensor
from mallorn.workers.tvm.programs.parsed_program_cache import parse_tvm_target, vector_lanes

COLUMNS: Final = 2  # vectors in a row of the output tile
ROWS: Final = (1, 4, 5, 6, 7, 8, 12, 13, 14, 15)
FEW_ROWS: Final = (4, 5, 6)  # on every machine, one of them reaches the peak without spilling
LEAST_LANES: Final = 4
DEPTH, STEPS = 64, 64  # the operands stay in the L1 cache
STREAMS: Final = 8  # vectors that are read in parallel
READ_BYTES: Final = 4 << 20  # per core and call, or the working set if that is larger
ONE_CORE_BYTES: Final = 64 << 20
SIZES: Final = tuple(int(2 ** (half / 2)) >> 10 << 10 for half in range(28, 53))  # 16 KB to 64 MB
SHARED_BYTES, SHARE_BYTES, MOST_BYTES = 128 << 20, 16 << 20, 512 << 20  # far above most caches
MOVING: Final = "moving.so"

TILE_STEPS: Final = 16  # multiplied tiles of data and of weights; they stay in the L1 cache
TURNS: Final = 64
_ONES: Final = {"int8": 0x01010101, "bfloat16": 0x3F803F80}  # 32 bits filled with ones of the type

Sourced = tuple[Probe, str]


class Dot(NamedTuple):
    """A dot-product instruction: it adds products of narrow numbers to each lane."""

    dtype: str
    sums: str
    lanes: int
    each: int  # products per vector element
    function: str
    text: str  # LLVM IR
    ones: int  # 32 bits filled with ones of the narrow type


def dot_product_instructions(target: Any) -> Iterator[Dot]:
    """Yield the best dot-product instruction, if any, of a target for bfloat16 and int8."""
    # Imported late: `load_intrinsics` registers their intrinsics in a fifth of the time.
    from mallorn.graphc.quant.dot_products import DOT, LLVM, PAIR
    from mallorn.graphc.quant.int8_instructions import best_instruction

    if target_has_features("avx512bf16", target):
        yield Dot("bfloat16", "float32", 16, PAIR, DOT, LLVM, _ONES["bfloat16"])
    if (best := best_instruction(target)) is not None:
        yield Dot("int8", best.sums, best.lanes, best.terms, best.function, best.text, _ONES["int8"])


def build_probes(target: str, folder: str) -> list[Probe]:
    """Write libraries of probes into `folder`. Return the probes: for the peak of each data
    type, for bandwidths, and for the cost of a parallel loop."""
    libraries = {
        "float32": list(_products(target)),
        "float64": [
            _product("float64", _cores(target), vector_lanes(target) // 2, rows) for rows in FEW_ROWS
        ],
        **{
            dot.dtype: list(_dot_products(target, dot))
            for dot in dot_product_instructions(parse_tvm_target(target))
        },
        **{
            f"{tile.numbers.weights}_tiles": [probe_tiles(tile, _cores(target))]
            for tile in reversed(instructions_of(parse_tvm_target(target)))
        },
        "moving": list(_memory_probes(target)),
    }
    for name, probes in libraries.items():
        if probes:
            export_probes(probes, target, Path(folder, f"{name}.so"))
    return [probe for probes in libraries.values() for probe, _ in probes]


def build_one_probe(target: str, folder: str) -> Probe:
    probe, text = next(_products(target))
    export_probes([(probe, text)], target, Path(folder, probe.library))
    return probe


def export_probes(probes: Sequence[Sourced], target: str, path: Path) -> None:
    texts = {probe.function: text for probe, text in probes}  # probes may share a function
    functions = {}
    for name, text in texts.items():
        head = f"@T.prim_func(s_tir=True)\ndef {name}"
        attrs = f'    T.func_attr({{"global_symbol": "{name}", "tirx.noalias": True}})'
        functions[name] = tvm.script.from_source(text.replace("HEAD", head).replace("ATTRS", attrs))
    library = tvm.tirx.build(tvm.IRModule(functions), target=parse_tvm_target(target))
    library.export_library(str(path), fcompile=linker_for(parse_target(target).toolchain))


def _cores(target: str) -> int:
    return int(parse_tvm_target(target).attrs["num-cores"])


def _products(target: str) -> Iterator[Sourced]:
    """Yield float32 multiply-add probes, in the widest vectors and in half as wide ones.
    One core tries each number of output rows in `ROWS`, all cores each in `FEW_ROWS`."""
    widest = vector_lanes(target)
    for lanes in (count for count in (widest, widest // 2) if count >= LEAST_LANES):
        for rows in ROWS:
            yield _product("float32", 1, lanes, rows)
        for rows in FEW_ROWS:
            yield _product("float32", _cores(target), lanes, rows)


def _product(dtype: str, cores: int, lanes: int, rows: int) -> Sourced:
    shapes = (cores, rows, COLUMNS, lanes), (DEPTH, rows), (DEPTH, COLUMNS, lanes)
    text = f"""HEAD(sums: T.Buffer({shapes[0]}, "{dtype}"), left: T.Buffer({shapes[1]}, "{dtype}"),
         right: T.Buffer({shapes[2]}, "{dtype}")) -> None:
ATTRS
    for core in T.parallel({cores}):
        for step, at in T.grid({STEPS}, {DEPTH}):
            for row in T.unroll({rows}):
                for column in T.unroll({COLUMNS}):
                    for lane in T.vectorized({lanes}):
                        sums[core, row, column, lane] = (
                            sums[core, row, column, lane] + left[at, row] * right[at, column, lane]
                        )
"""
    args = Arguments(tuple(Tensor("TENSOR", dtype, shape) for shape in shapes))
    return _peak(dtype, args, cores, lanes, rows, 2 * lanes), text


def _dot_products(target: str, dot: Dot) -> Iterator[Sourced]:
    """Yield all-core probes of a dot-product instruction, for row counts in `FEW_ROWS`."""
    cores, lanes = _cores(target), dot.lanes
    vector = f"T.ramp(0, 1, {lanes})"
    for rows in FEW_ROWS:
        shapes = (cores, rows, COLUMNS, lanes), (DEPTH, rows), (DEPTH, COLUMNS, lanes)
        text = f"""HEAD(sums: T.Buffer({shapes[0]}, "{dot.sums}"), left: T.Buffer({shapes[1]}, "int32"),
         right: T.Buffer({shapes[2]}, "int32")) -> None:
ATTRS
    for core in T.parallel({cores}):
        T.attr(0, "pragma_import_llvm", {dot.text!r})
        for step, at in T.grid({STEPS}, {DEPTH}):
            for row in T.unroll({rows}):
                for column in T.unroll({COLUMNS}):
                    sums[core, row, column, {vector}] = T.call_pure_extern(
                        "{dot.sums}x{lanes}", "{dot.function}", sums[core, row, column, {vector}],
                        T.broadcast(left[at, row], {lanes}), right[at, column, {vector}],
                    )
"""
        types = zip((dot.sums, "int32", "int32"), shapes, strict=True)
        ones = {"1": (dot.ones, dot.ones + 1), "2": (dot.ones, dot.ones + 1)}
        args = Arguments(tuple(Tensor("TENSOR", dtype, shape) for dtype, shape in types), ranges=ones)
        yield _peak(dot.dtype, args, cores, lanes, rows, 2 * dot.each * lanes), text


def _peak(dtype: str, args: Arguments, cores: int, lanes: int, rows: int, flops_per_vector: int) -> Probe:
    sums = rows * COLUMNS
    name = f"{dtype}_{cores}_{lanes}_{rows}"
    work = float(cores * STEPS * DEPTH * sums * flops_per_vector)
    return Probe(Finds.PEAK, name, f"{dtype}.so", args, cores, dtype, lanes, sums, work=work)


def probe_tiles(instruction: tiles.TileInstruction, cores: int) -> Sourced:
    """Return a probe of a tile instruction on `cores` cores, and its code in TVMScript."""
    numbers, dtype, tile_bytes = instruction.numbers, instruction.numbers.weights, tiles.BYTES
    rows, columns, words = tiles.ROWS, tiles.COLUMNS, TILE_STEPS * tiles.BYTES // 4
    all_rows, all_columns = tiles.FACTORS * rows, tiles.FACTORS * columns
    shapes = (cores, all_rows, all_columns), (all_rows, words), (tiles.FACTORS, words, columns)
    text = f"""HEAD(sums: T.Buffer({shapes[0]}, "{numbers.sums}"), left: T.Buffer({shapes[1]}, "int32"),
         right: T.Buffer({shapes[2]}, "int32")) -> None:
ATTRS
    for core in T.parallel({cores}):
        T.attr(0, "pragma_import_llvm", {instruction.text!r})
        T.evaluate(T.call_extern("int32", "{tiles.ALLOWED}"))
        for turn in range({TURNS}):
            T.evaluate(T.call_extern(
                "void", "{instruction.function}", T.address_of(left[0, 0]), T.address_of(left[{rows}, 0]),
                T.int64({words * 4}), T.int64(0), T.int64(1), T.int64({TILE_STEPS}), T.int64({tile_bytes}),
                T.address_of(right[0, 0, 0]), T.address_of(right[1, 0, 0]),
                T.address_of(sums[core, 0, 0]), T.address_of(sums[core, {rows}, 0]),
                T.int64({all_columns * 4}), T.int32({rows}), T.int32({rows}),
            ))
"""
    kinds = numbers.sums, "int32", "int32"
    tensors = (Tensor("TENSOR", kind, shape) for kind, shape in zip(kinds, shapes, strict=True))
    args = Arguments(tuple(tensors), ranges=dict.fromkeys("12", (_ONES[dtype], _ONES[dtype] + 1)))
    work = 2.0 * cores * TURNS * all_rows * all_columns * words * 4 / instruction.element_bytes
    name = f"{dtype}_tiles"
    return Probe(Finds.PEAK, name, f"{name}.so", args, cores, dtype, work=work), text


def _memory_probes(target: str) -> Iterator[Sourced]:
    """Yield probes of a core's bandwidth by size, of all cores', and of a parallel loop."""
    lanes, cores = vector_lanes(target), _cores(target)
    share = min(max(SHARED_BYTES // cores, SHARE_BYTES), MOST_BYTES // cores) >> 12 << 12
    for size in SIZES:
        yield _read_bandwidth_probe(Finds.BANDWIDTH, 1, lanes, ONE_CORE_BYTES, size)
    yield _read_bandwidth_probe(Finds.MEMORY, cores, lanes, share, share)
    text = f"""HEAD(out: T.Buffer(({cores}, 16), "float32")) -> None:
ATTRS
    for core in T.parallel({cores}):
        out[core, 0] = T.float32(1)
"""
    yield (
        Probe(Finds.FORK, "fork", MOVING, Arguments((Tensor("TENSOR", "float32", (cores, 16)),)), cores),
        text,
    )


def _read_bandwidth_probe(finds: Finds, cores: int, lanes: int, share: int, size: int) -> Sourced:
    """Return a probe in which each core repeatedly reads `size` of its own `share` bytes."""
    floats, turns, block = share // 4, max(1, READ_BYTES // size), STREAMS * lanes
    text = f"""HEAD(data: T.Buffer(({cores * floats},), "float32"), size: T.Buffer((1,), "int32"),
         turns: T.Buffer((1,), "int32"), sums: T.Buffer(({cores}, {STREAMS}, {lanes}), "float32")) -> None:
ATTRS
    for core in T.parallel({cores}):
        for turn, at in T.grid(turns[0], size[0]):
            for beside in T.unroll({STREAMS}):
                for lane in T.vectorized({lanes}):
                    sums[core, beside, lane] = (
                        sums[core, beside, lane]
                        + data[core * {floats} + at * {block} + beside * {lanes} + lane]
                    )
"""
    shapes = (cores * floats,), (1,), (1,), (cores, STREAMS, lanes)
    types = zip(("float32", "int32", "int32", "float32"), shapes, strict=True)
    tensors = tuple(Tensor("TENSOR", dtype, shape) for dtype, shape in types)
    blocks = size // 4 // block
    args = Arguments(tensors, ranges={"1": (blocks, blocks + 1), "2": (turns, turns + 1)})
    work = float(cores * turns * size)
    return Probe(finds, finds.value, MOVING, args, cores, lanes=lanes, bytes=size, work=work), text
