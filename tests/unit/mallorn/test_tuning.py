"""`mallorn.tune`, and what notebooks show: IPython is optional, so a stand-in notes what it is given."""

import asyncio
import io
import json
import sys
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from subprocess import CompletedProcess
from types import ModuleType, SimpleNamespace
from typing import Any
from unittest.mock import Mock

import httpx
import pytest

import mallorn
import mallorn.client.http_connection
import mallorn.client.job
from mallorn import Client, Job
from mallorn.client import tune_model as tuning
from mallorn.client.http_connection import Connection
from mallorn.client.job import JobFailed
from mallorn.client.local_service import Connected
from mallorn.client.out_directory import model_id_of
from mallorn.core.errors import Conflict, InvalidRequest
from mallorn.core.installation import MissingPackage, pip_install_command
from mallorn.core.settings import settings
from mallorn.core.targets import parse_target
from mallorn.core.values.graph_report import StoredRecipe
from mallorn.core.values.manifest import Manifest
from mallorn.db.migrate import upgrade
from mallorn.db.session import Database
from mallorn.kinds.cuda.device import nvidia_driver
from mallorn.stack.data_directory import DataDir
from mallorn.stack.read_only_coordinator import NothingRuns
from tests.fixtures.coordinator import OwnedRows
from tests.fixtures.decision_log import FIRST_PASS, run_round

PROGRESS = {
    "trials": 1,
    "failures": {},
    "estimated_us": None,
    "tasks": 0,
    "tasks_measured": 0,
    "open_candidates": 0,
}
BODY = {
    "id": "1f",
    "name": "net",
    "trials": 8,
    "progress": PROGRESS,
    "report": None,
    "created_at": 0.0,
    "finished_at": None,
    "state": "queued",
}


TARGET = parse_target({"kind": "llvm", "mcpu": "znver4", "num-cores": 2})
DEVICE = {
    **dict.fromkeys(("name", "host_id", "host_class", "tvm_version"), "known"),
    **dict.fromkeys(("id", "threads", "last_seen", "silent_sec"), 1),
    "target": TARGET.text,
    "info": {},
    "busy": False,
    "state": "idle",
    "online": True,
}


class Service:
    """A coordinator whose job takes one step of its life a look.

    `posted` are the paths that it was told of, `targets` those that jobs asked for.
    """

    def __init__(self, *states: str) -> None:
        self._states = list(states)
        self.posted: list[str] = []
        self.targets: list[Any] = []

    def __call__(self, request: httpx.Request) -> httpx.Response:
        path = request.url.path.removeprefix("/api/v1")
        if request.method == "POST":
            self.posted.append(path)
        if path == "/jobs":
            self.targets.append(json.loads(request.read())["target"])
        if path.endswith("/schedules"):
            return httpx.Response(200, content=_archive("database_workload.json"))
        if path.endswith(("/tasks", "/rounds")):
            return httpx.Response(200, json={"items": [], "next_cursor": None})
        if path.endswith("/events"):
            return httpx.Response(200)
        if path == "/devices":
            return httpx.Response(200, json={"items": [DEVICE]})
        if path == "/models":
            return httpx.Response(200, json={"id": "a" * 64})
        if path.startswith(("/models/", "/uploads/")):
            return httpx.Response(404, json={"error": "NotFound", "detail": "it is not known here"})
        state = self._states.pop(0) if len(self._states) > 1 else self._states[0]
        return httpx.Response(200, json={**BODY, "state": state})

    def client(self) -> Client:
        return Client("http://c", transport=httpx.MockTransport(self))

    def job(self) -> Job:
        return Job(Connection("http://c", transport=httpx.MockTransport(self)), dict(BODY))


def _archive(name: str) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as written:
        written.writestr(name, "{}")
    return file.getvalue()


@pytest.fixture(autouse=True)
def quick(quick_retries: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr("mallorn.client.job.UPDATE_SEC", 0.0)
    monkeypatch.delenv("MALLORN_URL", raising=False)
    settings.cache_clear()
    yield
    settings.cache_clear()


Use = Callable[[Service], None]


@pytest.fixture
def use(monkeypatch: pytest.MonkeyPatch) -> Use:
    """Lets a service stand in for the stack on this machine."""

    def go(service: Service) -> None:
        @contextmanager
        def stack(*_named: Any) -> Iterator[Connected]:
            with service.client() as api:
                yield Connected(api)

        monkeypatch.setattr(tuning, "connected_stack", stack)

    return go


def test_tune_returns_a_finished_job_whose_schedules_lie_there(use: Use, model: Path, tmp_path: Path) -> None:
    use(Service("queued", "tuning", "done"))
    job = mallorn.tune(model, trials=8, out=tmp_path / "tuned")
    assert (job.id, job.body["state"]) == ("1f", "done")
    assert (tmp_path / "tuned" / "database_workload.json").is_file()


def test_local_is_what_the_service_says(use: Use, model: Path, tmp_path: Path) -> None:
    use(service := Service("done"))
    mallorn.tune(model, out=tmp_path / "tuned")
    assert service.targets == [TARGET.text]


def test_the_schedules_of_another_target_are_kept_and_nothing_is_submitted(
    use: Use, model: Path, tmp_path: Path
) -> None:
    (directory := tmp_path / "tuned").mkdir()
    theirs = Manifest(
        model=model_id_of(model), target={"kind": "llvm", "num-cores": 3}, recipe=StoredRecipe()
    )
    (directory / "manifest.json").write_text(theirs.model_dump_json())
    use(service := Service("done"))
    with pytest.raises(Conflict, match="for another target") as caught:
        mallorn.tune(model, out=directory)
    assert "force=True" in caught.value.hint
    assert service.posted == []


def test_cuda_is_the_gpu_of_this_machine_for_a_service_here(
    use: Use, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer = CompletedProcess([], 0, stdout='[0, "GPU-a", "H100", 1, "580", 90]')
    monkeypatch.setattr(nvidia_driver, "run_with_tvm", lambda *_: answer)
    service = Service("done")
    use(service)
    mallorn.tune(model, "cuda", out=tmp_path / "tuned")
    assert service.targets == [parse_target("nvidia/nvidia-h100").text]


def test_without_a_directory_the_schedules_lie_beside_where_one_works(
    use: Use, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    use(Service("done"))
    mallorn.tune(str(model))
    assert (tmp_path / "net-tuned" / "database_workload.json").is_file()


def test_a_job_that_fails_raises_and_leaves_nothing(use: Use, model: Path, tmp_path: Path) -> None:
    use(Service("queued", "failed"))
    with pytest.raises(JobFailed):
        mallorn.tune(model, out=tmp_path / "tuned")
    assert not (tmp_path / "tuned").exists()


def test_a_wrong_file_is_told_before_anything_is_started(tmp_path: Path) -> None:
    with pytest.raises(mallorn.MallornError, match="there is no file"):
        mallorn.tune(tmp_path / "nowhere.onnx")


def test_without_the_parts_of_a_service_the_line_that_installs_them_is_said(
    model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tuning, "find_spec", lambda module: None)
    with pytest.raises(MissingPackage, match="needs sqlalchemy") as caught:
        mallorn.tune(model)
    assert pip_install_command("server,worker") in caught.value.hint


def test_interrupting_pauses_the_job(use: Use, model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    use(service := Service("tuning"))
    monkeypatch.setattr(Job, "wait", Mock(side_effect=KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        mallorn.tune(model)
    assert service.posted == ["/jobs", "/jobs/1f/pause"]


def test_what_happens_is_told_on_stderr_and_nothing_on_stdout(
    use: Use, model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    use(Service("queued", "tuning", "done"))
    mallorn.tune(model, out=tmp_path / "tuned")
    told = capsys.readouterr()
    assert told.out == ""
    assert "job 1f, its page: http://c/#/jobs/1f" in told.err
    assert "done  1/8 trials" in told.err


def test_who_wants_to_be_told_is_and_nothing_is_printed(
    use: Use, model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    told: list[str] = []
    use(Service("queued", "tuning", "done"))
    mallorn.tune(model, out=tmp_path / "tuned", progress=lambda job: told.append(job.state))
    assert told[-1] == "done"
    assert capsys.readouterr().err == ""


class Exporting(Service):
    """A service whose job has a first export from the start."""

    def __call__(self, request: httpx.Request) -> httpx.Response:
        if request.url.path.endswith("/events"):
            return httpx.Response(200, text='id: 1\nevent: exported\ndata: {"seconds": 12.3}\n\n')
        answer = super().__call__(request)
        told = request.method == "GET" and request.url.path.endswith("/1f")
        return httpx.Response(200, json={**answer.json(), "exported": True}) if told else answer


def test_who_interrupts_a_job_that_has_a_first_export_finds_it_in_the_directory(
    use: Use, model: Path, tmp_path: Path
) -> None:
    use(Exporting("finishing"))
    with pytest.raises(KeyboardInterrupt):
        mallorn.tune(model, trials=0, out=tmp_path / "tuned", progress=Mock(side_effect=KeyboardInterrupt))
    assert (tmp_path / "tuned" / "database_workload.json").is_file()


def test_a_first_export_is_told_on_stderr(
    use: Use, model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    use(Exporting("finishing", "finishing", "done"))
    mallorn.tune(model, trials=0, out=tmp_path / "tuned")
    assert capsys.readouterr().err.count(f"first export after 12 s: {tmp_path / 'tuned'}\n") == 1


def test_the_schedules_of_another_model_are_not_written_over(use: Use, model: Path, tmp_path: Path) -> None:
    (directory := tmp_path / "tuned").mkdir()
    theirs = Manifest(model="b" * 64, target={"kind": "llvm", "num-cores": 2}, recipe=StoredRecipe())
    (directory / "manifest.json").write_text(theirs.model_dump_json())
    use(service := Service("done"))
    with pytest.raises(Conflict, match="schedules of another model") as caught:
        mallorn.tune(model, out=directory)
    assert "force=True" in caught.value.hint
    assert service.posted == []
    mallorn.tune(model, out=directory, force=True)
    assert (directory / "database_workload.json").is_file()


def test_a_tuned_job_stays_readable_when_its_service_has_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pandas = SimpleNamespace(DataFrame=lambda rows, columns: rows)
    monkeypatch.setitem(sys.modules, "pandas", pandas)
    upgrade(url := f"sqlite:///{tmp_path / 'mallorn.db'}")
    rows = OwnedRows(Database(url))
    run_round(rows, "w0", [30.0, None], FIRST_PASS)
    with Client("http://127.0.0.1:9") as api:
        job = Job(api.connection, {"id": rows.job_id, "state": "done"})
        kept = Connected(api, DataDir(tmp_path)).job_from_files(job)

    async def cell() -> None:
        """A notebook's, whose thread has a loop that runs."""
        assert kept.state == "tuning"
        assert [(task.name, task.trials) for task in kept.tasks()] == [("w0", 2), ("w1", 0)]
        assert len(kept.explain()) == 1
        assert (len(kept.history()), len(list(kept.records()))) == (1, 2)

    asyncio.run(cell())
    with pytest.raises(NothingRuns):
        kept.pause()


class Notebook:
    """What a cell showed, at first and then in place of it."""

    def __init__(self) -> None:
        self.shown: list[str] = []

    def display(self, html: str, display_id: bool) -> "Notebook":
        assert display_id
        self.shown.append(html)
        return self

    def update(self, html: str) -> None:
        self.shown.append(html)


@pytest.fixture
def notebook(monkeypatch: pytest.MonkeyPatch) -> Notebook:
    cell = Notebook()
    package, module = ModuleType("IPython"), ModuleType("IPython.display")
    package.get_ipython = lambda: SimpleNamespace(kernel=object())  # type: ignore[attr-defined]
    module.HTML, module.display = str, cell.display  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "IPython", package)
    monkeypatch.setitem(sys.modules, "IPython.display", module)
    return cell


def test_a_watched_job_is_shown_in_one_place_until_it_ends(notebook: Notebook) -> None:
    job = Service("queued", "tuning", "done").job()
    assert job.watch() is job
    assert len(notebook.shown) == 3
    for html, state in zip(notebook.shown, ("queued", "tuning", "done"), strict=True):
        assert f"job 1f: {state}" in html


def test_tune_shows_itself_in_a_notebook(use: Use, model: Path, tmp_path: Path, notebook: Notebook) -> None:
    use(Service("queued", "done"))
    mallorn.tune(model, out=tmp_path / "tuned")
    assert "job 1f: done" in notebook.shown[-1]


def test_outside_of_a_notebook_watching_says_what_to_do() -> None:
    with pytest.raises(InvalidRequest) as caught:
        Service("tuning").job().watch()
    assert caught.value.hint == "job.wait()"
