"""`mallorn record` writes what data directories have, and measures models one searcher after the other."""

import dataclasses
import io
import json
import sys
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console

from mallorn.cli.terminal import progress_bars
from mallorn.core.installation import pip_install_command
from mallorn.core.states import JobState
from mallorn.core.values.candidate import Choice, ChoiceKind
from mallorn.core.values.dataset import UploadedModel
from mallorn.core.values.job import JobStatus
from mallorn.db.migrate import upgrade
from mallorn.db.repositories.workloads import Sketches, Workloads
from mallorn.db.session import Database
from mallorn_research.commands import record_measurements as recording
from mallorn_research.commands import wait_until_tuned
from mallorn_research.replay.recording_file import read_facts, read_tasks
from tests.fixtures.answers import mallorn, refused
from tests.fixtures.rows import Rows, new_sketch, new_workload

record = partial(mallorn, "record")


@pytest.fixture(autouse=True)
def data_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MALLORN_DATA_DIR", str(tmp_path / "default"))


def dataset(directory: Path, workload: str, candidates: int) -> Path:
    """A data directory with one measured task."""
    directory.mkdir()
    database = Database(f"sqlite:///{directory / 'mallorn.db'}")
    upgrade(database.url)
    rows = Rows(database)
    new = dataclasses.replace(new_workload(workload), features={"extents": [8]})
    rows.workloads |= rows.write(lambda session: Workloads(session).ensure_many([new]))
    tiled = new_sketch("tiled", (Choice(ChoiceKind.TILE, 2, 64, 64),))
    rows.sketch_id = rows.write(lambda session: Sketches(session).ensure_many([tiled]))["tiled"]
    rows.job_id = rows.write(lambda session: rows.add_job(session, "ada", (workload,)))
    batch = [*(rows.ok(slot, 10.0 - slot) for slot in range(candidates - 1)), rows.failed(candidates)]
    rows.measured_round(*batch, workload=workload)
    database.dispose()
    return directory


def test_what_two_directories_have_becomes_one_file(tmp_path: Path) -> None:
    first, second = dataset(tmp_path / "a", "one", 4), dataset(tmp_path / "b", "two", 5)
    out = tmp_path / "new" / "s.parquet"
    result = record("--data", first, "--data", second, "--candidates", 4, "--out", out, "--json")
    assert result.exit_code == 0, result.output
    told = json.loads(result.stdout)
    assert [(row["name"], row["candidates"], row["failures"]) for row in told] == [
        ("fused_one", 4, 1),
        ("fused_two", 5, 1),
    ]
    assert [task.optimum_us for task in read_tasks(out)] == [8.0, 7.0]
    assert read_facts(out)["hosts"] == []


def test_only_as_many_tasks_are_kept_as_were_asked_for(tmp_path: Path) -> None:
    first, second = dataset(tmp_path / "a", "one", 4), dataset(tmp_path / "b", "two", 5)
    out = tmp_path / "s.parquet"
    record("--data", first, "--data", second, "--candidates", 4, "--tasks", 1, "--out", out)
    assert len(read_tasks(out)) == 1


@pytest.mark.usefixtures("model")
@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "there is no dataset in"),
        (("--data", "a", "--candidates", "6"), "has 6 measured candidates"),
        (("missing.onnx",), "there is no file 'missing.onnx'"),
        (("net.onnx", "--data", "a", "--data", "b"), "measured in one data directory"),
    ],
)
def test_what_cannot_be_recorded_is_refused_with_the_next_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], said: str
) -> None:
    monkeypatch.chdir(tmp_path)
    dataset(tmp_path / "a", "one", 4)
    refused(record(*words), said)
    assert not (tmp_path / "recording.parquet").exists()


def test_a_missing_library_is_named_before_anything_is_measured(
    model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    monkeypatch.delitem(sys.modules, "mallorn_research.replay.recording_file")
    monkeypatch.delattr("mallorn_research.replay.recording_file")
    monkeypatch.setattr(recording, "connected_stack", lambda *_: pytest.fail("a service was started"))
    refused(record(model), pip_install_command("server,worker"))


class FakeJob:
    """Tunes for one look, then is in its last state."""

    def __init__(self, last: JobState) -> None:
        self.id, self.cancelled, self.last, self.looks = "j1", False, last, 0
        self.status = JobStatus(id="j1", state=last, ended_because="why")

    @property
    def state(self) -> JobState:
        self.looks += 1
        return JobState.TUNING if self.looks == 1 else self.last

    def cancel(self) -> None:
        self.cancelled = True


def test_both_searchers_measure_their_half_and_no_finish_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[dict[str, Any]] = []
    jobs = [FakeJob(JobState.FINISHING), FakeJob(JobState.DONE)]
    quick = partial(wait_until_tuned.wait_until_tuned, poll_sec=0.0)
    monkeypatch.setattr(recording, "wait_until_tuned", quick)

    def submit(*_words: Any, **options: Any) -> FakeJob:
        asked.append(options)
        return jobs[len(asked) - 1]

    api = SimpleNamespace(upload=lambda *_, **_options: UploadedModel(id="m"), submit=submit)
    stack: Any = SimpleNamespace(api=api)
    recording._measure(stack, tmp_path / "net.onnx", 101, "local", 0, ("conv2d*",))
    assert all(options["only"] == ["conv2d*"] for options in asked)
    assert [options["search"] for options in asked] == list(recording.SEARCHERS)
    assert asked[0]["search"] == "random" != asked[1]["search"]
    assert {options["stopping"] for options in asked} == {"fixed"}
    assert sum(options["task_trials"] for options in asked) == 101 + recording.ROUND_SIZE
    assert [job.cancelled for job in jobs] == [True, False]


@pytest.mark.parametrize("state", [JobState.FAILED, JobState.CANCELLED, JobState.PAUSED])
def test_a_job_that_did_not_get_through_its_budget_is_no_recording(state: JobState) -> None:
    with pytest.raises(wait_until_tuned.NotTuned, match="why") as refused:
        wait_until_tuned.wait_until_tuned(FakeJob(state), "mallorn show j1", 0.0)  # type: ignore[arg-type]
    assert refused.value.hint == "mallorn show j1"


class Measured:
    """A job of two tasks that is measured at its second look."""

    id = "j1"

    def __init__(self, **options: Any) -> None:
        self._states = [JobState.IMPORTING, JobState.TUNING, JobState.DONE]
        self._options = options

    @property
    def state(self) -> JobState:
        state = self._states.pop(0)
        tasks = 0 if state is JobState.IMPORTING else 2
        progress = {"trials": 8, "tasks": tasks}
        known = {"id": "j1", "state": state, "trials": 1000, "progress": progress, "options": self._options}
        self.status = JobStatus.model_validate(known)
        return state


@pytest.mark.parametrize(("options", "share"), [({"task_trials": 8}, "50%"), ({}, "1%")])
def test_a_job_that_is_waited_for_shows_how_much_of_its_budget_is_spent(
    monkeypatch: pytest.MonkeyPatch, options: dict[str, Any], share: str
) -> None:
    console = Console(file=io.StringIO(), force_terminal=True, width=100)
    monkeypatch.setattr(progress_bars, "stderr", lambda: console)
    wait_until_tuned.wait_until_tuned(Measured(**options), "", 0.0)  # type: ignore[arg-type]
    assert isinstance(console.file, io.StringIO)
    assert share in console.file.getvalue()
