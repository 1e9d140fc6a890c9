"""A linker that fails for a target's instruction set is a fault of the host, and no candidate's result."""

import platform
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from mallorn.core.errors import HostFault
from mallorn.core.states import RoundState
from mallorn.core.targets import parse_target
from mallorn.workers.host.linker import emulations, link_command
from mallorn.workers.interfaces.candidate_compiler import CandidateCompiler
from mallorn.workers.interfaces.tensor_arguments import Arguments
from mallorn.workers.measure.build_candidates import Builds
from mallorn.workers.measure.measurer_interface import MeasureInput, Program
from mallorn.workers.measure.tvm_space import TvmSpace
from mallorn.workers.process import toolchains
from mallorn.workers.process.toolchains import missing_tools
from mallorn.workers.process.worker_health import find_host_fault
from mallorn.workers.subprocesses.process_pool import ChildPool
from tests.fixtures.workshop import Workshop
from tests.unit.tvm_space.programs import matmul

OTHER = "x86_64" if platform.machine() == "aarch64" else "aarch64"
TARGET = parse_target({"kind": "llvm", "mtriple": f"{OTHER}-linux-gnu", "num-cores": 2})


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A PATH whose `ld.lld` prints a sentence and fails for the other instruction set, on a host with zig."""
    linker = tmp_path / "tools" / "ld.lld"
    linker.parent.mkdir()
    fails = f"*{emulations()[OTHER]}*) echo no libraries today; exit 1;;"
    linker.write_text(f'#!/bin/sh\ncase "$*" in {fails} esac\n')
    linker.chmod(0o755)
    monkeypatch.setenv("PATH", f"{linker.parent}:/usr/bin:/bin")
    monkeypatch.setattr(toolchains, "find_zig", lambda: "zig")  # which would compile C
    for cached in (link_command, missing_tools):
        cached.cache_clear()
    yield f"{linker.parent}:/usr/bin:/bin"
    for cached in (link_command, missing_tools):
        cached.cache_clear()


def test_a_failing_linker_stores_no_candidate_and_returns_the_round(
    workshop: Workshop, path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = Program("key", matmul(), Arguments(()), 1.0)
    faults: list[HostFault] = []
    monkeypatch.setattr(workshop.health, "record_fault", faults.append)
    make = partial(CandidateCompiler, name="builder", env={"PATH": path})
    with make() as compiler, ChildPool(make, 1) as builders:
        sketches = compiler.design_space(program.tir, TARGET.text)
        candidate = TvmSpace(sketches, program, TARGET, (), compiler).defaults()[0]
        sketch = next(each for each in sketches if each.key == candidate.sketch)

        def build(_program: Program, slot: MeasureInput) -> object:
            entry = MeasureInput(slot.slot, candidate, sketch)
            builds = Builds(builders, [entry], program, TARGET, tmp_path, 60.0)
            while not (ends := builds.poll(1.0)):
                pass
            return ends[0]

        monkeypatch.setattr(workshop.bench, "answer", build)
        job = workshop.job(("w0",), trials=8)
        round_id = workshop.next_round(job)
        assert workshop.run(round_id) is None
    assert workshop.rows() == []
    assert workshop.round(round_id).state == RoundState.QUEUED
    assert f"cannot link a shared library for {OTHER}: no libraries today" in workshop.explanation(job)
    assert len(faults) == 1


@pytest.mark.usefixtures("path")
def test_a_worker_rests_until_each_of_its_linkers_links() -> None:
    assert not missing_tools()[OTHER]
    fault = find_host_fault(tunes=True)
    assert fault is not None
    assert "no libraries today" in fault.message
