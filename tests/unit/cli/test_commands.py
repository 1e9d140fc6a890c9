"""The commands that talk to a coordinator: data on stdout, words on stderr, exit codes for scripts."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from mallorn.cli import jobs
from mallorn.client.progress_lines import FirstExport
from mallorn.core.errors import ExitCode
from mallorn.core.states import JobState
from mallorn.core.values.event import OtherEvent
from mallorn.core.values.graph_report import StoredRecipe
from mallorn.core.values.manifest import Manifest
from mallorn.db.repositories.devices import Devices, SeenDevice
from mallorn.db.repositories.job_events_and_warnings import Events
from mallorn.db.repositories.jobs import Jobs
from mallorn.db.repositories.workers import Workers
from mallorn.stack.data_directory import DataDir, StackInfo
from tests.fixtures.answers import Shell, data, mallorn, refused
from tests.fixtures.brought import bring
from tests.fixtures.coordinator import Coordinator, OwnedRows
from tests.fixtures.kept import Kept

pytestmark = pytest.mark.usefixtures("named_coordinator")
TARGET = '{"kind":"llvm","num-cores":2}'


def end(owned: OwnedRows, state: JobState, because: str = "", **recorded: Any) -> None:
    with owned.database.transaction() as session:
        Jobs(session).move_to_state(owned.job_id, list(JobState), state, because)
        Jobs(session).store_report_columns(owned.job_id, report={}, **recorded)
        Events(session).append(owned.job_id, OtherEvent(kind="state", data={"state": str(state)}))


ANSWER = {"source": "near", "basis": "carried from other sizes", "confidence": "likely"}


def measure(owned: OwnedRows) -> None:
    owned.closed_round(owned.ok(0, 5.0), owned.failed(1))


EMPTY = ("jobs", "models", "dataset records", "schedules", "devices", "workers")


def test_nothing_there_gets_words_on_stderr_and_an_empty_list_as_json(shell: Shell, kept: Kept) -> None:
    for command in EMPTY:
        shell(command, command, f"{command} --json")
    kept("nothing-there", shell.texts)


def test_without_a_url_the_stack_on_the_data_directory_answers(
    coordinator: Coordinator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mallorn.client.coordinator_client.DEFAULT_URL", "http://127.0.0.1:9")
    monkeypatch.delenv("MALLORN_URL", raising=False)
    monkeypatch.setenv("MALLORN_DATA_DIR", str(tmp_path / "home"))
    stack = DataDir(tmp_path / "home")
    stack.create_directories()
    info = StackInfo(coordinator.url, 1, "redis+socket:///x", "127.0.0.1:1", until_unused=False)
    with stack.hold_stack_lock(), stack.publish_stack_info(info):
        assert data(mallorn("models", "--json")) == []
    stack.stack_file.write_text(json.dumps(asdict(info)))  # as a killed stack leaves it
    refused(mallorn("devices"), "no coordinator answers at http://127.0.0.1:9", "next:  mallorn up")


def test_submit_prints_the_id_alone_on_stdout(model: Path) -> None:
    result = mallorn("submit", model, "--target", TARGET, "--trials", "5")
    job_id = result.stdout.strip()
    assert f"mallorn watch {job_id}" in result.stderr
    shown = data(mallorn("show", job_id, "--json"))
    assert (shown["name"], shown["trials"], shown["state"]) == ("net", 5, "queued")


def test_submit_takes_options_and_shapes(model: Path) -> None:
    named = ("--sampler", "diverse", "--stopping", "adaptive", "--only", "conv*", "--search", "ga")
    words = ("-o", "search=random", "-o", "evaluator.repeat=3", "--input-shape", "x:1,3,8,8")
    options = data(mallorn("submit", model, "--target", TARGET, *named, *words, "--json"))["options"]
    assert (options["sampler"], options["stopping"], options["only"]) == ("diverse", "adaptive", ["conv*"])
    assert (options["search"], options["evaluator"]["repeat"]) == ("random", 3)
    assert options["input_shapes"] == {"x": [1, 3, 8, 8]}


def test_submit_takes_ranges_of_free_dimensions(model: Path) -> None:
    words = ("--dynamic", "batch=1..64", "--dynamic", "length=128")
    options = data(mallorn("submit", model, "--target", TARGET, *words, "--json"))["options"]
    assert options["dynamic"] == {"batch": [1, 64], "length": [128, 128]}


REFUSED = """
submit missing.onnx
submit MODEL --target local
submit MODEL --target llvm
submit MODEL --target TARGET -o search=astrology
submit MODEL --input-shape x:1,many
submit MODEL --dynamic batch
submit MODEL --dynamic batch=1..many
submit MODEL --dynamic batch=64..1
submit MODEL -o search
show nope
watch nope
jobs tasks nope
jobs cancel nope
schedules nope
dataset records --job nope
schedules --target {
"""


def test_an_error_says_what_happened_and_what_to_type_next(model: Path, shell: Shell, kept: Kept) -> None:
    shell.names |= {"MODEL": model, "TARGET": TARGET}
    shell("refused", *REFUSED.split("\n")[1:-1])
    assert shell.texts["refused"].count("! error:") == shell.texts["refused"].count("! next:") == 16
    kept("refused-commands", shell.texts)


def test_what_cannot_be_parsed_is_a_usage_error() -> None:
    for words in (("submit",), ("submit", "m", "--trials", "-1"), ("jobs", "--state", "lost"), ("fly",)):
        assert mallorn(*words).exit_code == 2, words


def lose(owned: OwnedRows, **recorded: Any) -> None:
    """The job ends four times slower than onnxruntime."""
    end(owned, JobState.DONE, **recorded)
    timing = {"median": 2000.0, "low": 1900.0, "high": 2100.0}
    other = {"median": 500.0, "low": 490.0, "high": 510.0}
    report = {
        "latency_us": {"untuned": {**timing, "median": 50_000.0}, "tuned": timing, "onnxruntime": other}
    }
    owned.write(lambda session: Jobs(session).store_report_columns(owned.job_id, report=report))


def test_what_is_told_of_a_job_in_each_state(
    owned: OwnedRows, shell: Shell, kept: Kept, monkeypatch: pytest.MonkeyPatch
) -> None:
    shell.names["JOB"] = owned.job_id
    measure(owned)
    looks = "jobs", "show JOB", "jobs tasks JOB", "dataset records"
    shell("it is tuning", *looks, "jobs --state queued")
    bring(owned, "w0", 4.0)
    shell("stock's logs tell of a task", *looks[1:3])
    with monkeypatch.context() as patch:
        patch.setattr("mallorn.services.coordinator.jobs.list_and_show.LEAST_BYTES", 2**62)
        shell("the disk is full", "show JOB")
    lose(owned)
    with monkeypatch.context() as patch:
        patch.setattr("mallorn.services.coordinator.jobs.list_and_show.LEAST_BYTES", 2**62)
        shell("it is done, and slower than onnxruntime", *looks[:2])
    end_report = {"unmeasured_schedules": {"fused_dense": ANSWER}, "schedule_count": 1, "workload_count": 2}
    owned.write(lambda session: Jobs(session).store_report_columns(owned.job_id, report=end_report))
    shell("it was not searched", "show JOB")
    kept("job-by-state", shell.texts)


def test_the_end_of_a_watched_job(owned: OwnedRows, shell: Shell, kept: Kept) -> None:
    shell.names["JOB"] = owned.job_id
    measure(owned)
    lose(owned, export_uri="somewhere")
    shell("done", "watch JOB")
    end(owned, JobState.FAILED, "no operator Foo")
    shell("failed", "watch JOB")
    kept("watched-job", shell.texts)


def test_records_are_limited_and_filtered(owned: OwnedRows) -> None:
    measure(owned)
    assert len(data(mallorn("dataset", "records", "--limit", "1", "--json"))) == 1
    (failed,) = data(mallorn("dataset", "records", "--outcome", "build_error", "--json"))
    assert failed["error"] == "no"


@pytest.mark.parametrize("value", ["on", "true", "True"])
def test_a_boolean_option_is_typed_as_a_word(model: Path, value: str) -> None:
    words = "--option", f"private={value}", "--option", "contention=off"
    options = data(mallorn("submit", model, "--target", TARGET, *words, "--json"))["options"]
    assert (options["private"], options["contention"]) == (True, False)


def test_a_job_is_left_paused_and_cancelled(
    owned: OwnedRows, model: Path, shell: Shell, kept: Kept, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(firsts: dict[str, FirstExport], *_shown: object, **_how: object) -> None:
        firsts[""].job.refresh()
        raise KeyboardInterrupt

    private = data(mallorn("submit", model, "--target", TARGET, "--private", "--json"))
    assert private["options"]["private"] is True
    shell.names |= {"JOB": owned.job_id, "PRIVATE": private["id"], "HASH": private["model_id"]}
    shell("a private job", "show PRIVATE")
    shell("paused", "jobs pause JOB")
    owned.write(lambda session: Jobs(session).store_report_columns(owned.job_id, export_uri="exports/of/it"))
    monkeypatch.setattr(jobs, "show_until_ended", interrupt)
    shell("left, and cancelled, with a first version", "watch JOB", "jobs cancel JOB", "jobs cancel JOB")
    kept("left-job", shell.texts)


def test_watch_as_json_prints_one_event_a_line(owned: OwnedRows) -> None:
    end(owned, JobState.CANCELLED)
    result = mallorn("watch", owned.job_id, "--json")
    assert result.exit_code == ExitCode.JOB_FAILED
    assert json.loads(result.stdout) == {"id": 1, "kind": "state", "payload": {"state": "cancelled"}}


def test_schedules_of_a_job_are_unpacked(owned: OwnedRows, coordinator: Coordinator, tmp_path: Path) -> None:
    refused(mallorn("schedules", owned.job_id), f"mallorn watch {owned.job_id}")
    directory = coordinator.artifacts / "exports" / "x"
    directory.mkdir(parents=True)
    manifest = Manifest(model="of another", target=json.loads(TARGET), recipe=StoredRecipe())
    (directory / "manifest.json").write_text(manifest.model_dump_json())
    end(owned, JobState.DONE, export_uri=str(directory))
    out = tmp_path / "out"
    answer = data(mallorn("schedules", owned.job_id, "--out", str(out), "--json"))
    assert answer == {"directory": str(out), "files": [str(out / "manifest.json")]}
    again = mallorn("schedules", owned.job_id, "--out", str(out))
    assert "schedules of another model" in again.stderr
    assert mallorn("schedules", owned.job_id, "--out", str(out), "--force").exit_code == 0


def test_models_are_uploaded_and_listed(model: Path) -> None:
    model_id = mallorn("models", "upload", model).stdout.strip()
    (listed,) = data(mallorn("models", "--json"))
    assert (listed["id"], listed["name"]) == (model_id, "net.onnx")
    assert data(mallorn("submit", model_id, "--target", TARGET, "--json"))["model_id"] == model_id


def test_the_fleet_is_listed(owned: OwnedRows) -> None:
    with owned.database.transaction() as session:
        Devices(session).record_seen(SeenDevice("rack-7", owned.target_id, "h", "class", 2, "0.27.0"))
        Workers(session).record_seen("host:1:2", "h", {})
    assert "rack-7" in mallorn("devices").stdout
    (worker,) = data(mallorn("workers", "--json"))
    assert worker["id"] == "host:1:2"
