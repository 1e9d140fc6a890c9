"""Candidates for another instruction set than the builder's are linked for it."""

import json
import platform
import struct
from pathlib import Path

import pytest

from mallorn.core.targets import Target
from mallorn.workers.interfaces.candidate_compiler import CandidateCompiler
from mallorn.workers.interfaces.tensor_arguments import Arguments
from mallorn.workers.measure.measurer_interface import Program
from mallorn.workers.measure.tvm_space import TvmSpace
from mallorn.workers.process.toolchains import missing_tools
from tests.fixtures.command_line import mallorn
from tests.unit.tvm_space.programs import conv2d, matmul

OTHER = "x86_64" if platform.machine() == "aarch64" else "aarch64"
FEATURES = {"aarch64": "+neon", "x86_64": "+avx2"}
MACHINES = {"aarch64": 183, "x86_64": 62}  # as ELF files number them
TARGET = f'{{"kind":"llvm","mattr":["{FEATURES[OTHER]}"],"mtriple":"{OTHER}-linux-gnu","num-cores":2}}'


@pytest.mark.parametrize("tir", [matmul(), conv2d()], ids=["dense", "conv"])
def test_a_candidate_for_another_instruction_set_is_linked_for_it(tir: str, tmp_path: Path) -> None:
    if missing_tools()[OTHER]:
        pytest.fail(f"this host has no linker for {OTHER}: make cross")
    library = tmp_path / "candidate.so"
    with CandidateCompiler(room=tmp_path) as compiler:
        program, target = Program("key", tir, Arguments(()), 1.0), Target(TARGET)
        sketches = compiler.design_space(tir, TARGET)
        candidate = TvmSpace(sketches, program, target, (), compiler).defaults()[-1]
        trace = next(each.trace for each in sketches if each.key == candidate.sketch)
        compiler.build(tir, TARGET, trace, candidate.decisions, str(library))
    assert struct.unpack_from("<H", library.read_bytes(), 18)[0] == MACHINES[OTHER]


def test_mallorn_check_builds_a_kernel_for_another_instruction_set_without_a_device(tmp_path: Path) -> None:
    done = mallorn("check", "--target", TARGET, "--data", str(tmp_path), "--json")
    assert done.returncode == 0, done.stdout + done.stderr
    found = {each["name"]: each["words"] for each in json.loads(done.stdout)}
    assert found["kernel"] == f"a kernel was built; a device for {OTHER} can run it"
    assert "makes shared libraries" in found["linker"]
