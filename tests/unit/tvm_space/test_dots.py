"""Sums of products of narrow numbers, by whatever instruction a target has."""

import json
from pathlib import Path

import numpy as np
import pytest
import tvm

from mallorn.core.targets import Target
from mallorn.core.values.machine import assume_typical_cpu
from mallorn.graphc.quant import dot_products
from mallorn.graphc.quant.dot_product_function import Sums, build_dot_function
from mallorn.graphc.quant.tile_instruction import TileInstruction
from mallorn.graphc.quant.tile_instructions import instructions_of
from mallorn.graphc.quant.x86_int8_instructions import INSTRUCTIONS
from mallorn.graphc.quant.x86_tile_instructions import BF16, INT8
from mallorn.searchers.roller.rank_candidates import ranked
from mallorn.workers.device.target_support import find_unsupported_reason
from mallorn.workers.interfaces.hardware_probes import Finds
from mallorn.workers.interfaces.model_compiler import Tuned
from mallorn.workers.tvm.programs.loop_nests import nests
from mallorn.workers.tvm.programs.parsed_program_cache import parse_tvm_target
from mallorn.workers.tvm.records.tuning_database import write_database
from mallorn.workers.tvm.sessions import cpu_probes
from mallorn.workers.tvm.sessions.cpu_probes import (
    TURNS,
    dot_product_instructions,
    probe_tiles,
)
from mallorn.workers.tvm.space.rebuild_schedule import full_trace
from mallorn.workers.tvm.space.sketches import design_space
from tests.unit.graphc.networks import TILES, runs


def target(**facts: str) -> str:
    return json.dumps({"kind": "llvm", "num-cores": 1, **facts})


@pytest.mark.parametrize(
    ("facts", "found"),
    [
        ({"mcpu": "znver4"}, {"bfloat16": 16, "int8": 16}),
        ({"mcpu": "icelake-server"}, {"int8": 16}),
        ({"mcpu": "skylake-avx512"}, {"int8": 16}),
        ({"mcpu": "alderlake"}, {"int8": 8}),
        ({"mcpu": "haswell"}, {"int8": 8}),
        ({"mcpu": "x86-64"}, {}),
        ({"mtriple": "aarch64-linux-gnu"}, {}),
        ({"mtriple": "aarch64-linux-gnu", "mcpu": "neoverse-n1"}, {"int8": 4}),
        ({"mtriple": "aarch64-linux-gnu", "mcpu": "neoverse-v1"}, {"int8": 4}),
    ],
    ids=str,
)
def test_a_target_has_the_best_of_each_type(facts: dict[str, str], found: dict[str, int]) -> None:
    assert {
        dot.dtype: dot.lanes for dot in dot_product_instructions(parse_tvm_target(target(**facts)))
    } == found


@pytest.mark.parametrize("by", [INT8, BF16], ids=["bytes", "bfloat16"])
def test_the_probe_of_tiles_does_what_it_says(by: TileInstruction, tmp_path: Path) -> None:
    """It is compiled on every machine; on one with tiles it sums up what it counts."""
    probe, text = probe_tiles(by, 2)
    path = tmp_path / probe.library
    cpu_probes.export_probes([(probe, text)], TILES, path)
    assert instructions_of(parse_tvm_target(TILES)) == [INT8, BF16]
    if not runs(TILES):
        return
    sums, *factors = (np.zeros(shape, dtype) for _, dtype, shape in probe.args.args)
    for at, each in enumerate(factors, 1):
        each[:] = probe.args.ranges[str(at)][0]
    held = [tvm.runtime.tensor(each) for each in (sums, *factors)]
    tvm.runtime.load_module(str(path))[probe.function](*held)
    assert 2 * TURNS * held[0].numpy().sum() == probe.work


ARM = {"cortex-a76": "sdot", "neoverse-v1": "usdot"}


@pytest.mark.parametrize("mcpu", ARM)
def test_the_probe_of_another_cpu_multiplies_bytes_by_its_instruction(mcpu: str) -> None:
    text = target(mtriple="aarch64-linux-gnu", mcpu=mcpu)
    (dot,) = dot_product_instructions(parse_tvm_target(text))
    probe, source = next(cpu_probes._dot_products(text, dot))
    head = f"@T.prim_func(s_tir=True)\ndef {probe.function}"
    source = source.replace("HEAD", head).replace("ATTRS", "    T.func_attr({'global_symbol': 'main'})")
    built = tvm.tirx.build(tvm.script.from_source(source), target=parse_tvm_target(text))
    assert f"\t{ARM[mcpu]}\tv" in built.inspect_source("asm")


def test_the_probe_of_tiles_of_another_cpu_multiplies_by_its_instruction() -> None:
    text = target(mtriple="aarch64-linux-gnu", mcpu="neoverse-v1")
    by = instructions_of(parse_tvm_target(text))[0]
    probe, source = probe_tiles(by, 1)
    head = f"@T.prim_func(s_tir=True)\ndef {probe.function}"
    source = source.replace("HEAD", head).replace("ATTRS", "    T.func_attr({'global_symbol': 'main'})")
    built = tvm.tirx.build(tvm.script.from_source(source), target=parse_tvm_target(text))
    assert "\tusmmla\tv" in built.inspect_source("asm")
    left, columns = probe.args.args[1].shape, probe.args.args[0].shape[-1]
    assert probe.work == 2 * TURNS * columns * 4 * np.prod(left)


@pytest.mark.parametrize("mcpu", ["haswell", "alderlake", "skylake-avx512", "icelake-server", "znver4"])
def test_the_probes_of_a_target_compile_and_sum_what_they_say(
    mcpu: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Those of wide numbers and of memory are told apart by a number alone.
    for name in ("ROWS", "SIZES"):
        monkeypatch.setattr(cpu_probes, name, getattr(cpu_probes, name)[:2])
    built = cpu_probes.build_probes(target(mcpu=mcpu), str(tmp_path))
    probes = [each for each in built if each.finds is Finds.PEAK]
    narrow = [each for each in probes if each.dtype in ("int8", "bfloat16")]
    assert narrow
    if why := find_unsupported_reason(Target(target(mcpu=mcpu))):
        pytest.skip(why)
    for probe in narrow:
        sums, *factors = (np.zeros(shape, dtype) for _, dtype, shape in probe.args.args)
        for at, each in enumerate(factors, 1):
            each[:] = probe.args.ranges[str(at)][0]
        held = [tvm.runtime.tensor(each) for each in (sums, *factors)]
        tvm.runtime.load_module(str(tmp_path / probe.library))[probe.function](*held)
        assert 2 * held[0].numpy().sum() == probe.work


DOTS = {
    "haswell": INSTRUCTIONS["avx2"],
    "alderlake": INSTRUCTIONS["avxvnni"],
    "skylake-avx512": INSTRUCTIONS["avx512bw"],
    "icelake-server": INSTRUCTIONS["avx512vnni"],
    "znver4": dot_products.INSTRUCTION,
}


@pytest.mark.parametrize("mcpu", DOTS)
@pytest.mark.parametrize("outputs", [64, 75])
def test_a_record_of_a_product_by_an_instruction_is_taken(mcpu: str, outputs: int, tmp_path: Path) -> None:
    sums = Sums(data=(4, 32), result=(4, outputs), inputs=32, read=("vi0", DOTS[mcpu].input_index))
    function = build_dot_function(DOTS[mcpu], sums).with_attr("global_symbol", "main")
    tir, text = tvm.ir.save_json(tvm.IRModule({"main": function})), target(mcpu=mcpu)
    sketches, records = {sketch.key: sketch for sketch in design_space(tir, text)}, []
    for guess in ranked(list(sketches.values()), nests(tir), assume_typical_cpu(1, 16), 8):
        if (trace := full_trace(tir, text, sketches[guess.sketch].trace, guess.decisions)) is None:
            continue
        assert '"Tensorize"' in trace
        records.append(Tuned(tir, trace, [1e-6]))
    assert records
    assert write_database(str(tmp_path / "records"), text, records) == []
