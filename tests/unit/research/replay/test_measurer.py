"""Replay says again what was recorded, without TVM, and what it was never told it says so."""

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from mallorn.core.errors import InvalidRequest
from mallorn.core.job_options import JobOptions
from mallorn.core.outcomes import Outcome
from mallorn.core.stand_in_measurers import measured_target
from mallorn.core.targets import Target, parse_target
from research.replay.measurer import ReplayMeasurer
from research.replay.recorded_task import RecordedTask
from research.replay.recording_file import write_tasks
from searchers.space import Candidate
from tests.kits.measurers import MeasurerTestCase, Workplace
from tests.unit.research.replay.made_up import made_up
from workers.interfaces.tensor_arguments import Arguments
from workers.measure.base import MeasureInput, Program

TASK = made_up(120)
TARGET = measured_target(Target(TASK.target), "replay")
PROGRAM = Program(TASK.workload, "", Arguments(()), TASK.flops)


def replaying(path: Path, *tasks: RecordedTask) -> JobOptions:
    """The options of a job on a recording of these tasks."""
    write_tasks(path, tasks, {"hosts": []})
    return JobOptions(measurer="replay", recording=str(path))


def slots(*outcomes: Outcome) -> list[MeasureInput]:
    """Recorded candidates that ended so, each another one."""
    left = list(TASK.trials)
    found = []
    for outcome in outcomes:
        trial = next(trial for trial in left if (trial.outcome is Outcome.OK) == (outcome is Outcome.OK))
        left.remove(trial)
        sketch = next(sketch for sketch in TASK.sketches if sketch.key == trial.candidate.sketch)
        found.append(MeasureInput(len(found), trial.candidate, sketch))
    return found


@pytest.fixture
def recorded(tmp_path: Path) -> JobOptions:
    return replaying(tmp_path / "recording.parquet", TASK)


class TestReplayMeasurer(MeasurerTestCase):
    """Two that ran when they were recorded, and one that did not."""

    @pytest.fixture
    def measurer(self) -> ReplayMeasurer:
        return ReplayMeasurer()

    @pytest.fixture
    def workplace(self, recorded: JobOptions) -> Workplace:
        bad = Outcome.BUILD_ERROR
        return Workplace(PROGRAM, TARGET, slots(Outcome.OK, Outcome.OK, bad), recorded)


def test_what_was_recorded_comes_back_under_the_slot_that_asks(recorded: JobOptions) -> None:
    trials = {trial.candidate: trial for trial in TASK.trials}
    wanted = slots(Outcome.OK, Outcome.BUILD_ERROR)
    fast, broken = ReplayMeasurer().measure(PROGRAM, TARGET, wanted, recorded)
    assert fast.trial.latency_us == trials[wanted[0].candidate].latency_us
    assert (broken.slot, broken.trial.error) == (1, "no")
    assert broken.trial.outcome is trials[wanted[1].candidate].outcome
    assert fast.endpoint is not None
    assert (fast.endpoint.host_class, fast.endpoint.threads) == ("a-host", 2)


def test_a_candidate_that_the_recording_lacks_is_an_outcome_of_its_own(recorded: JobOptions) -> None:
    (known,) = slots(Outcome.OK)
    unknown = replace(known, candidate=Candidate(known.candidate.sketch, (1,) * known.sketch.width))
    for results in (
        list(ReplayMeasurer().measure(PROGRAM, TARGET, [unknown], recorded)),
        list(ReplayMeasurer().measure(replace(PROGRAM, key="another"), TARGET, [known], recorded)),
        ReplayMeasurer().compare(PROGRAM, TARGET, [unknown], recorded, 3),
    ):
        assert [result.trial.outcome for result in results] == [Outcome.NOT_RECORDED]
        assert results[0].trial.error == "the recording has no such candidate of this task"


def test_the_context_of_most_tasks_is_heard(tmp_path: Path) -> None:
    other = {"host_class": "another", "threads": 4, "tvm_version": "0.27.0"}
    tasks = [TASK, replace(TASK, context=other), replace(made_up(10, seed=1), context=other)]
    endpoint = ReplayMeasurer().stand_in({}, TARGET, replaying(tmp_path / "two.parquet", *tasks)).endpoint
    assert (endpoint.host_class, endpoint.threads, endpoint.tvm_version) == ("another", 4, "0.27.0")


def test_a_recording_that_was_written_anew_is_read_anew(tmp_path: Path) -> None:
    path = tmp_path / "recording.parquet"
    tasks = {TASK.workload: "first"}
    assert ReplayMeasurer().stand_in(tasks, TARGET, replaying(path, TASK, made_up(10, seed=1)))
    with pytest.raises(InvalidRequest):
        ReplayMeasurer().stand_in(tasks, TARGET, replaying(path, made_up(10, seed=1)))


def test_a_recording_may_be_named_by_a_url(recorded: JobOptions) -> None:
    named = recorded.model_copy(update={"recording": f"file://{recorded.recording}"})
    assert ReplayMeasurer().stand_in({TASK.workload: "t"}, TARGET, named)


def test_a_job_is_told_which_of_its_tasks_are_not_recorded(recorded: JobOptions) -> None:
    tasks = {TASK.workload: "fused_matmul", "other": "fused_conv2d", "third": "fused_softmax"}
    found = ReplayMeasurer().stand_in(tasks, TARGET, recorded)
    assert found.lacks == "2 of 3 tasks are not in the recording: fused_conv2d, fused_softmax"
    assert found.hint.startswith("mallorn record")
    assert ReplayMeasurer().stand_in({TASK.workload: "fused_matmul"}, TARGET, recorded).lacks == ""


def test_a_job_of_which_nothing_is_recorded_is_told_how_to_record_it(
    recorded: JobOptions,
) -> None:
    with pytest.raises(InvalidRequest, match="holds no task of this job") as told:
        ReplayMeasurer().stand_in({"other": "fused_conv2d"}, TARGET, recorded)
    assert told.value.hint.startswith("mallorn record")


def test_a_recording_of_another_target_names_its_own(recorded: JobOptions) -> None:
    elsewhere = measured_target(parse_target({"kind": "llvm", "num-cores": 64}), "replay")
    with pytest.raises(InvalidRequest, match="was not recorded for") as told:
        ReplayMeasurer().stand_in({}, elsewhere, recorded)
    assert told.value.hint == f"--target '{TASK.target}'"


def test_a_recording_that_a_simulation_left_is_for_the_target_that_was_simulated(tmp_path: Path) -> None:
    made = replace(TASK, target=measured_target(Target(TASK.target), "simulated").text)
    found = ReplayMeasurer().stand_in({}, TARGET, replaying(tmp_path / "made.parquet", made))
    assert found.endpoint.host_class == "a-host"


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("/nowhere/recording.parquet", "no recording at /nowhere/recording.parquet"),
        ("odd://recording.parquet", "cannot read the recording odd:"),
    ],
)
def test_a_file_that_workers_cannot_read_is_named(url: str, words: str) -> None:
    with pytest.raises(InvalidRequest, match=words) as told:
        ReplayMeasurer().stand_in({}, TARGET, JobOptions(measurer="replay", recording=url))
    assert told.value.hint


def test_a_file_that_is_no_recording_is_named(tmp_path: Path) -> None:
    path = tmp_path / "text.parquet"
    path.write_text("no")
    with pytest.raises(InvalidRequest, match="not a Parquet file"):
        ReplayMeasurer().stand_in({}, TARGET, JobOptions(measurer="replay", recording=str(path)))


def test_replay_needs_no_tvm() -> None:
    program = "import sys; import research.replay.measurer; sys.exit('tvm' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
