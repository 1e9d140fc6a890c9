"""Replay says again what was measured, without TVM."""

import subprocess
import sys
from pathlib import Path

import pytest

from mallorn.core.errors import InvalidRequest, Misconfigured, NotFound
from mallorn.core.options import JobOptions
from mallorn.core.outcomes import Outcome
from mallorn.core.settings import Settings
from mallorn.core.targets import parse_target
from tests.fixtures.measurer_kit import MeasurerKit, Workplace
from workers.children.pool import ChildPool
from workers.device.endpoint import Endpoint
from workers.faces.compiler import Compiler
from workers.faces.runner import Runner
from workers.faces.values import Arguments
from workers.measure.base import Program, Result, Slot, Tools
from workers.measure.recording import append_result, load_recording
from workers.measure.replay import NOT_RECORDED, ReplayMeasurer
from workers.search.space import Candidate, Sketch

TARGET = parse_target({"kind": "llvm", "num-cores": 2})
PROGRAM = Program(key="program", tir="", args=Arguments(()), flops=1.0)
SKETCH = Sketch("sketch", "[]", ())
DEVICE = Endpoint("device", "host", "class", 2, "0.27", {"cores": 2})
SLOTS = [Slot(i, Candidate("sketch", (i,)), SKETCH) for i in range(3)]
FAST = Result(7, Outcome.OK, (1.5, 2.5), "", 100.0, 200.0, DEVICE)
BROKEN = Result(8, Outcome.BUILD_ERROR, error="no such intrinsic")


@pytest.fixture
def recording(tmp_path: Path) -> Path:
    path = tmp_path / "recording.jsonl"
    append_result(path, PROGRAM.key, SLOTS[0].candidate.key, FAST)
    append_result(path, PROGRAM.key, SLOTS[1].candidate.key, BROKEN)
    append_result(path, "another program", SLOTS[2].candidate.key, FAST)
    return path


class TestReplayMeasurer(MeasurerKit):
    """Two recorded candidates, the second a failure."""

    @pytest.fixture
    def measurer(self, recording: Path) -> ReplayMeasurer:
        return ReplayMeasurer(recording)

    @pytest.fixture
    def workplace(self) -> Workplace:
        return Workplace(PROGRAM, TARGET, SLOTS[:2])


def test_what_was_recorded_comes_back_under_the_slot_that_asks(recording: Path) -> None:
    fast, broken, _ = ReplayMeasurer(recording).measure(PROGRAM, TARGET, SLOTS, JobOptions())
    assert fast == Result(0, Outcome.OK, (1.5, 2.5), "", 100.0, 200.0, DEVICE)
    assert broken == Result(1, Outcome.BUILD_ERROR, error="no such intrinsic")


def test_a_candidate_that_was_never_measured_is_a_run_error(recording: Path) -> None:
    results = list(ReplayMeasurer(recording).measure(PROGRAM, TARGET, SLOTS, JobOptions()))
    assert results[2] == Result(2, Outcome.RUN_ERROR, error=NOT_RECORDED)


def test_a_missing_recording_is_named(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="nowhere"):
        ReplayMeasurer(tmp_path / "nowhere.jsonl")


@pytest.mark.parametrize("line", ["{torn", '"text"', '{"program": "p"}', '{"program":"p","outcome":"odd"}'])
def test_a_bad_line_is_named(recording: Path, line: str) -> None:
    with recording.open("a") as lines:
        lines.write(line + "\n")
    with pytest.raises(InvalidRequest, match="line 4"):
        load_recording(recording)


@pytest.mark.parametrize("file", [None, "nowhere.jsonl"])
def test_a_worker_without_its_recording_is_one_that_is_set_up_wrongly(
    tmp_path: Path, file: str | None
) -> None:
    settings = Settings(recording=None if file is None else tmp_path / file)
    tools = Tools(settings, ChildPool(Compiler, 0), Runner())
    with pytest.raises(Misconfigured) as caught:
        ReplayMeasurer.from_tools(tools)
    assert caught.value.hint


def test_replay_needs_no_tvm() -> None:
    program = "import sys; import workers.measure.replay; sys.exit('tvm' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
