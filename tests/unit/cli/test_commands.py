"""The commands that talk to a coordinator: data on stdout, words on stderr, exit codes for scripts."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from mallorn.cli import jobs
from mallorn.client.job import Job
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
from tests.fixtures.answers import data, mallorn, refused
from tests.fixtures.brought import bring
from tests.fixtures.coordinator import Coordinator, OwnedRows

pytestmark = pytest.mark.usefixtures("named_coordinator")
TARGET = '{"kind":"llvm","num-cores":2}'


def end(owned: OwnedRows, state: JobState, because: str = "", **recorded: Any) -> None:
    with owned.database.transaction() as session:
        Jobs(session).move_to_state(owned.job_id, [JobState.TUNING], state, because)
        Jobs(session).store_report_columns(owned.job_id, report={}, **recorded)
        Events(session).append(owned.job_id, OtherEvent(kind="state", data={"state": str(state)}))


def measure(owned: OwnedRows) -> None:
    owned.closed_round(owned.ok(0, 5.0), owned.failed(1))


EMPTY = {
    "jobs": "mallorn tune",
    "models": "mallorn models upload",
    "dataset records": "no measurements",
    "schedules": "no schedules yet",
    "devices": "mallorn device",
    "workers": "mallorn worker",
}


def test_nothing_there_gets_words_on_stderr_and_an_empty_list_as_json() -> None:
    for command, said in EMPTY.items():
        result = mallorn(*command.split())
        assert (result.exit_code, result.stdout) == (0, ""), command
        assert said in result.stderr, command
        assert data(mallorn(*command.split(), "--json")) == [], command


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


REFUSED = [
    (("submit", "missing.onnx"), "missing.onnx"),
    (("submit", "MODEL", "--target", "local"), "next:  mallorn device"),
    (("submit", "MODEL", "--target", "llvm"), "num-cores"),
    (("submit", "MODEL", "--target", TARGET, "-o", "search=astrology"), "next:  known: "),
    (("submit", "MODEL", "--input-shape", "x:1,many"), "--input-shape x:1,3,224,224"),
    (("submit", "MODEL", "--dynamic", "batch"), "--dynamic batch=1..64"),
    (("submit", "MODEL", "--dynamic", "batch=1..many"), "--dynamic batch=1..64"),
    (("submit", "MODEL", "--dynamic", "batch=64..1"), "the smallest size must come first"),
    (("submit", "MODEL", "-o", "search"), "--option search=random"),
    (("show", "nope"), "next:  mallorn jobs"),
    (("watch", "nope"), "there is no job nope"),
    (("jobs", "tasks", "nope"), "there is no job nope"),
    (("jobs", "cancel", "nope"), "there is no job nope"),
    (("schedules", "nope"), "there is no job nope"),
    (("dataset", "records", "--job", "nope"), "there is no job nope"),
    (("schedules", "--target", "{"), "not valid JSON"),
]


def test_an_error_says_what_happened_and_what_to_type_next(model: Path) -> None:
    for words, said in REFUSED:
        refused(mallorn(*(model if word == "MODEL" else word for word in words)), said)


def test_what_cannot_be_parsed_is_a_usage_error() -> None:
    for words in (("submit",), ("submit", "m", "--trials", "-1"), ("jobs", "--state", "lost"), ("fly",)):
        assert mallorn(*words).exit_code == 2, words


def test_jobs_and_show_tell_how_far_a_job_is(owned: OwnedRows) -> None:
    measure(owned)
    line = next(line for line in mallorn("jobs").stdout.splitlines() if owned.job_id in line)
    assert "2/64" in line
    assert "tuning" in line
    shown = mallorn("show", owned.job_id).stdout
    assert "1 build_error" in shown
    assert "1 of 2 measured" in shown
    assert data(mallorn("jobs", "--state", "queued", "--json")) == []


def lose(owned: OwnedRows, **recorded: Any) -> None:
    """The job ends four times slower than onnxruntime."""
    end(owned, JobState.DONE, **recorded)
    timing = {"median": 2000.0, "low": 1900.0, "high": 2100.0}
    other = {"median": 500.0, "low": 490.0, "high": 510.0}
    report = {
        "latency_us": {"untuned": {**timing, "median": 50_000.0}, "tuned": timing, "onnxruntime": other}
    }
    owned.write(lambda session: Jobs(session).store_report_columns(owned.job_id, report=report))


SLOWER = "verdict: 4.0 times slower than onnxruntime (ratio 0.25, 0.23 to 0.27) after 2 trials"


def test_show_prints_the_figures_of_a_done_job_and_judges_them(owned: OwnedRows) -> None:
    measure(owned)
    lose(owned)
    shown = mallorn("show", owned.job_id)
    assert "2.000 ms" in shown.stdout
    assert "0.25" in shown.stdout
    assert SLOWER in shown.stdout
    assert f"next:  mallorn resume {owned.job_id} --auto" in shown.stderr


def test_show_tells_what_the_tasks_of_a_job_without_a_search_rest_on(owned: OwnedRows) -> None:
    end(owned, JobState.DONE)
    answer = {"source": "near", "basis": "carried from other sizes", "confidence": "likely"}
    report = {"unmeasured_schedules": {"fused_dense": answer}, "schedule_count": 1, "workload_count": 2}
    owned.write(lambda session: Jobs(session).store_report_columns(owned.job_id, report=report))
    shown = mallorn("show", owned.job_id).stdout
    for words in ("ANSWERED BY", "fused_dense", "near", "likely", "1 of 2 tasks", "built and checked: no"):
        assert words in shown, words


def test_a_list_of_jobs_sets_each_beside_onnxruntime(owned: OwnedRows) -> None:
    lose(owned)
    heading, line = mallorn("jobs").stdout.splitlines()
    assert "VS ONNXRUNTIME" in heading
    assert "4.0 times slower" in line


def test_a_job_on_a_full_disk_says_so(owned: OwnedRows, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "disk" not in mallorn("show", owned.job_id).stdout
    monkeypatch.setattr("mallorn.services.coordinator.jobs.list_and_show.LEAST_BYTES", 2**62)
    assert "is full; free some room" in mallorn("show", owned.job_id).stdout
    end(owned, JobState.DONE)
    assert "disk" not in mallorn("show", owned.job_id).stdout


def test_tasks_are_a_table(owned: OwnedRows) -> None:
    measure(owned)
    table = mallorn("jobs", "tasks", owned.job_id).stdout
    assert "Weighted" in table
    assert table.splitlines()[-1].split() == ["matmul", "0,", "1"], "both tasks are in one family"
    assert [task["latency_us"] for task in data(mallorn("jobs", "tasks", owned.job_id, "--json"))] == [
        5.0,
        None,
    ]


def test_what_stock_found_stands_beside_ours_where_its_logs_tell(owned: OwnedRows) -> None:
    measure(owned)
    assert (
        "tock's" not in mallorn("show", owned.job_id).stdout + mallorn("jobs", "tasks", owned.job_id).stdout
    )
    bring(owned, "w0", 4.0)
    words = "4.0 us for 1 task, on a host that its logs do not name; 5.0 us here"
    assert words in mallorn("show", owned.job_id).stdout
    table = mallorn("jobs", "tasks", owned.job_id).stdout
    assert "Stock's logs" in table
    assert [line.split()[-1] for line in table.splitlines()[2:4]] == ["4", "-"]


def test_records_are_limited_and_filtered(owned: OwnedRows) -> None:
    measure(owned)
    assert len(data(mallorn("dataset", "records", "--limit", "1", "--json"))) == 1
    (failed,) = data(mallorn("dataset", "records", "--outcome", "build_error", "--json"))
    assert failed["error"] == "no"
    assert "build_error" in mallorn("dataset", "records").stdout


@pytest.mark.parametrize("value", ["on", "true", "True"])
def test_a_boolean_option_is_typed_as_a_word(model: Path, value: str) -> None:
    words = "--option", f"private={value}", "--option", "contention=off"
    options = data(mallorn("submit", model, "--target", TARGET, *words, "--json"))["options"]
    assert (options["private"], options["contention"]) == (True, False)


def test_a_private_job_says_so(model: Path) -> None:
    job = data(mallorn("submit", model, "--target", TARGET, "--private", "--json"))
    assert job["options"]["private"] is True
    assert "kept from other owners" in mallorn("show", job["id"]).stdout
    other = data(mallorn("submit", model, "--target", TARGET, "--json"))
    assert "private" not in mallorn("show", other["id"]).stdout


def test_a_job_is_paused_and_cancelled(owned: OwnedRows) -> None:
    assert f"mallorn resume {owned.job_id}" in mallorn("jobs", "pause", owned.job_id).stderr
    assert data(mallorn("jobs", "cancel", owned.job_id, "--json"))["state"] == "cancelled"
    refused(mallorn("jobs", "cancel", owned.job_id), "is cancelled")


def test_who_cancels_or_leaves_a_job_with_a_first_version_is_told_how_to_fetch_it(
    owned: OwnedRows, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(job: Job, *_shown: object, **_how: object) -> None:
        job.refresh()
        raise KeyboardInterrupt

    owned.write(lambda session: Jobs(session).store_report_columns(owned.job_id, export_uri="exports/of/it"))
    monkeypatch.setattr(jobs, "show_until_ended", interrupt)
    for command in ("watch", "jobs cancel"):
        told = mallorn(*command.split(), owned.job_id).stderr
        assert f"fetch its schedules with   mallorn schedules {owned.job_id}" in told


def test_watch_ends_with_the_result_of_a_done_job(owned: OwnedRows) -> None:
    measure(owned)
    lose(owned, export_uri="somewhere")
    result = mallorn("watch", owned.job_id)
    assert result.exit_code == 0
    assert "done  2/64 trials  1 failed" in result.stderr
    assert "onnxruntime" in result.stdout.splitlines()[3]
    assert result.stdout.splitlines()[-1] == SLOWER
    assert f"mallorn schedules {owned.job_id}" in result.stderr


def test_watch_fails_with_a_failed_job(owned: OwnedRows) -> None:
    end(owned, JobState.FAILED, "no operator Foo")
    refused(mallorn("watch", owned.job_id), "no operator Foo", f"mallorn show {owned.job_id}")


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
