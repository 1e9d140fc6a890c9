"""Replay says again what was recorded, without TVM, and what it was never told it says so."""

import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from mallorn.core.errors import InvalidRequest
from mallorn.core.job_options import JobOptions
from mallorn.core.outcomes import Outcome
from mallorn.core.targets import Target, parse_target
from mallorn.core.virtual_devices import add_virtual_device
from mallorn.searchers.space import Candidate
from mallorn.workers.interfaces.tensor_arguments import Arguments
from mallorn.workers.measure.measurer_interface import MeasureInput, Program
from mallorn_research.replay.measurer import ReplayMeasurer
from mallorn_research.replay.recording_file import RecordedTask, write_tasks
from research.tests.unit.replay.made_up import made_up
from tests.kits.measurers import MeasurerTestCase, Workplace

TASK = made_up(120)
TARGET = add_virtual_device(Target(TASK.target), "replay")
PROGRAM = Program(TASK.workload, "", Arguments(()), TASK.flops)


def replaying(path: Path, *tasks: RecordedTask) -> JobOptions:
    """The options of a job on a recording of these tasks."""
    write_tasks(path, tasks, {"hosts": []})
    return JobOptions(measurer="replay", recording=str(path))


@lru_cache
def room() -> Path:
    return Path(tempfile.mkdtemp())


def replayer(recordings: str = "*") -> ReplayMeasurer:
    return ReplayMeasurer(recordings, room())


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


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> JobOptions:
    """One for all tests of the module: each recording is read by a process of its own."""
    return replaying(tmp_path_factory.mktemp("recorded") / "recording.parquet", TASK)


class TestReplayMeasurer(MeasurerTestCase):
    """Two that ran when they were recorded, and one that did not."""

    @pytest.fixture
    def measurer(self) -> ReplayMeasurer:
        return replayer()

    @pytest.fixture
    def workplace(self, recorded: JobOptions) -> Workplace:
        bad = Outcome.BUILD_ERROR
        return Workplace(PROGRAM, TARGET, slots(Outcome.OK, Outcome.OK, bad), recorded)


def test_what_was_recorded_comes_back_under_the_slot_that_asks(recorded: JobOptions) -> None:
    trials = {trial.candidate: trial for trial in TASK.trials}
    wanted = slots(Outcome.OK, Outcome.BUILD_ERROR)
    fast, broken = replayer().measure(PROGRAM, TARGET, wanted, recorded)
    assert fast.trial.latency_us == trials[wanted[0].candidate].latency_us
    assert (broken.slot, broken.trial.error) == (1, "no")
    assert broken.trial.outcome is trials[wanted[1].candidate].outcome
    assert fast.endpoint is not None
    assert (fast.endpoint.host_class, fast.endpoint.threads) == ("a-host", 2)


def test_a_candidate_that_the_recording_lacks_is_an_outcome_of_its_own(recorded: JobOptions) -> None:
    (known,) = slots(Outcome.OK)
    unknown = replace(known, candidate=Candidate(known.candidate.sketch, (1,) * known.sketch.decision_count))
    for results in (
        list(replayer().measure(PROGRAM, TARGET, [unknown], recorded)),
        list(replayer().measure(replace(PROGRAM, key="another"), TARGET, [known], recorded)),
        replayer().measure_in_passes(PROGRAM, TARGET, [unknown], recorded, 3),
    ):
        assert [result.trial.outcome for result in results] == [Outcome.NOT_RECORDED]
        assert results[0].trial.error == "the recording does not hold this candidate of the task"


def test_the_context_of_most_tasks_is_heard(tmp_path: Path) -> None:
    other = {"host_class": "another", "threads": 4, "tvm_version": "0.27.0"}
    tasks = [TASK, replace(TASK, context=other), replace(made_up(10, seed=1), context=other)]
    endpoint = replayer().virtual_device_for({}, TARGET, replaying(tmp_path / "two.parquet", *tasks)).endpoint
    assert (endpoint.host_class, endpoint.threads, endpoint.tvm_version) == ("another", 4, "0.27.0")


def test_a_recording_that_was_written_anew_is_read_anew(tmp_path: Path) -> None:
    path = tmp_path / "recording.parquet"
    tasks = {TASK.workload: "first"}
    assert replayer().virtual_device_for(tasks, TARGET, replaying(path, TASK, made_up(10, seed=1)))
    with pytest.raises(InvalidRequest):
        replayer().virtual_device_for(tasks, TARGET, replaying(path, made_up(10, seed=1)))


@pytest.mark.parametrize("scheme", ["", "file://"])
def test_a_job_names_a_recording_below_the_operators_directory_or_prefix(
    recorded: JobOptions, scheme: str
) -> None:
    folder, _, name = recorded.recording.rpartition("/")
    named = recorded.model_copy(update={"recording": name})
    assert replayer(f"{scheme}{folder}").virtual_device_for({TASK.workload: "t"}, TARGET, named)


@pytest.fixture
def somebody_listens() -> Iterator[tuple[str, list[str]]]:
    """An address, and all that was asked there."""
    asked: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            self.send_error(404)

        do_HEAD = do_GET

        def log_message(self, *_: object) -> None: ...

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"127.0.0.1:{server.server_port}", asked
        server.shutdown()
        thread.join()


@pytest.mark.parametrize("recordings", ["", "*", "/data", "s3://operators/prefix"])
@pytest.mark.parametrize(
    "name",
    [
        "http://{there}/x", "simplecache::http://{there}/x", "zip://a::http://{there}/x", "ftp://{there}/x",
        "../../etc/passwd", "a/../../b", "/../etc/passwd", "",
    ],
)  # fmt: skip
def test_a_worker_opens_no_address_that_a_job_names(
    somebody_listens: tuple[str, list[str]], recordings: str, name: str
) -> None:
    address, asked = somebody_listens
    options = JobOptions(measurer="replay", recording=name.format(there=address))
    with pytest.raises(InvalidRequest):
        replayer(recordings).virtual_device_for({}, TARGET, options)
    assert asked == []


def test_a_recording_is_read_behind_walls_and_not_in_the_worker(
    recorded: JobOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pq, "read_table", lambda *_a, **_k: pytest.fail("the worker read it itself"))
    monkeypatch.setattr(pq, "read_schema", lambda *_a, **_k: pytest.fail("the worker read it itself"))
    assert replayer().virtual_device_for({TASK.workload: "t"}, TARGET, recorded)


def test_a_job_is_told_which_of_its_tasks_are_not_recorded(recorded: JobOptions) -> None:
    tasks = {TASK.workload: "fused_matmul", "other": "fused_conv2d", "third": "fused_softmax"}
    found = replayer().virtual_device_for(tasks, TARGET, recorded)
    assert found.lacks == "2 of 3 tasks are not in the recording: fused_conv2d, fused_softmax"
    assert found.hint.startswith("mallorn record")
    assert replayer().virtual_device_for({TASK.workload: "fused_matmul"}, TARGET, recorded).lacks == ""


def test_a_job_of_which_nothing_is_recorded_is_told_how_to_record_it(
    recorded: JobOptions,
) -> None:
    with pytest.raises(InvalidRequest, match="holds no task of this job") as told:
        replayer().virtual_device_for({"other": "fused_conv2d"}, TARGET, recorded)
    assert told.value.hint.startswith("mallorn record")


def test_a_recording_of_another_target_names_its_own(recorded: JobOptions) -> None:
    elsewhere = add_virtual_device(parse_target({"kind": "llvm", "num-cores": 64}), "replay")
    with pytest.raises(InvalidRequest, match="was not recorded for") as told:
        replayer().virtual_device_for({}, elsewhere, recorded)
    assert told.value.hint == f"--target '{TASK.target}'"


def test_a_recording_that_a_simulation_left_is_for_the_target_that_was_simulated(tmp_path: Path) -> None:
    made = replace(TASK, target=add_virtual_device(Target(TASK.target), "simulated").text)
    found = replayer().virtual_device_for({}, TARGET, replaying(tmp_path / "made.parquet", made))
    assert found.endpoint.host_class == "a-host"


@pytest.mark.parametrize("path", ["/nowhere/recording.parquet", "/dev/zero", "/proc"])
def test_a_file_that_workers_cannot_read_is_named(path: str) -> None:
    with pytest.raises(InvalidRequest, match=f"no recording {path}") as told:
        replayer().virtual_device_for({}, TARGET, JobOptions(measurer="replay", recording=path))
    assert told.value.hint


def test_a_file_that_is_no_recording_is_named(tmp_path: Path) -> None:
    path = tmp_path / "text.parquet"
    path.write_text("no")
    with pytest.raises(InvalidRequest, match=r"text\.parquet is not a Parquet file") as told:
        replayer(str(tmp_path)).virtual_device_for(
            {}, TARGET, JobOptions(measurer="replay", recording=path.name)
        )
    assert str(tmp_path) not in str(told.value), "where the operator keeps recordings is nobody's business"


def test_replay_needs_no_tvm() -> None:
    program = "import sys; import mallorn_research.replay.measurer; sys.exit('tvm' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
