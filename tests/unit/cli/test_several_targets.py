"""One `tune` for several targets: a job, a directory and a row for each; one that fails stops no other."""

import io
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import pytest
from rich.console import Console

from mallorn.cli import compile_and_bench, tune_and_resume
from mallorn.cli.live_view import show_until_ended
from mallorn.client.coordinator_client import Client
from mallorn.client.progress_lines import FirstExport
from mallorn.core.errors import ExitCode, MallornError
from mallorn.core.host_id import host_id
from mallorn.core.states import JobState
from mallorn.core.targets import name_targets, parse_target
from mallorn.core.values.graph_report import StoredRecipe
from mallorn.core.values.manifest import Manifest
from mallorn.db.repositories.devices import Devices, SeenDevice
from mallorn.db.repositories.jobs import Jobs
from mallorn.db.repositories.targets import Targets as TargetRows
from tests.fixtures.answers import data, mallorn, refused
from tests.fixtures.coordinator import Coordinator, Start
from tests.unit.cli.test_progress import Scripted, job

pytestmark = pytest.mark.usefixtures("named_coordinator")
ZEN = '{"kind":"llvm","mcpu":"znver4","num-cores":2}'
ARM = '{"kind":"llvm","mtriple":"aarch64-linux-gnu","num-cores":2}'
LATENCY: Final = {"median": 1234.0, "low": 1200.0, "high": 1300.0}
Targets = tuple[str, ...]


def tune(model: Path, out: Path, *words: object, targets: Targets = (ZEN, ARM)) -> Any:
    named = [word for target in targets for word in ("--target", target)]
    return mallorn("tune", model, *named, "--trials", 5, "--out", out, *words)


@pytest.fixture
def ended(coordinator: Coordinator, monkeypatch: pytest.MonkeyPatch) -> dict[str, JobState]:
    """The states in which jobs end, by the name of their target; others are done and have an export."""
    states: dict[str, JobState] = {}

    def end(firsts: Mapping[str, FirstExport], *_shown: object) -> None:
        for name, first in firsts.items():
            state, directory = states.get(name, JobState.DONE), coordinator.artifacts / "exports" / name
            directory.mkdir(parents=True)
            status = first.job.status
            manifest = Manifest(
                job=status.id,
                model=status.model_id,
                target=json.loads(status.target),
                recipe=StoredRecipe(),
            )
            (directory / "manifest.json").write_text(manifest.model_dump_json())
            with coordinator.database.transaction() as session:
                Jobs(session).move_to_state(status.id, list(JobState), state, "no round went well")
                report = {"latency_us": {"tuned": LATENCY}}
                Jobs(session).store_report_columns(status.id, report=report, export_uri=str(directory))
            first.job.refresh()

    monkeypatch.setattr(tune_and_resume, "show_until_ended", end)
    return states


def test_each_target_has_a_directory_and_a_row(
    ended: dict[str, JobState], model: Path, tmp_path: Path
) -> None:
    result = tune(model, tmp_path / "won")
    assert result.exit_code == 0, result.stderr
    head, *rows = [line.split() for line in result.stdout.splitlines()[-3:]]
    assert head == ["TARGET", "STATE", "DEFAULT", "BUILD", "TUNED", "ONNXRUNTIME", "VERDICT", "DIRECTORY"]
    figures = ["done", "-", "1.234", "ms", "-", "none"]
    assert rows == [[name, *figures, f"{tmp_path / 'won' / name}"] for name in ("znver4", "aarch64")]
    assert sorted(path.name for path in (tmp_path / "won").iterdir()) == ["aarch64", "znver4"]
    assert (tmp_path / "won" / "aarch64" / "manifest.json").is_file()


def test_json_is_a_list_with_the_job_and_the_directory_of_each_target(
    ended: dict[str, JobState], model: Path, tmp_path: Path
) -> None:
    rows = data(tune(model, tmp_path / "won", "--json"))
    assert [row["target_name"] for row in rows] == ["znver4", "aarch64"]
    assert [row["directory"] for row in rows] == [str(tmp_path / "won" / row["target_name"]) for row in rows]
    told = [(row["target"], row["state"]) for row in rows]
    assert told == [(parse_target(target).text, "done") for target in (ZEN, ARM)]


@pytest.mark.parametrize("words", [(), ("--json",)])
def test_a_target_that_fails_is_named_and_the_others_are_fetched(
    ended: dict[str, JobState], model: Path, tmp_path: Path, words: tuple[str, ...]
) -> None:
    ended["znver4"] = JobState.FAILED
    result = tune(model, tmp_path / "won", *words)
    assert result.exit_code == ExitCode.JOB_FAILED
    if words:
        failed, done = json.loads(result.stdout)
        assert (failed["state"], done["state"]) == ("failed", "done")
        assert "no round went well" in failed["failure"]
    else:
        assert "error: znver4: job" in result.stderr
        rows = [line.split() for line in result.stdout.splitlines()[-2:]]
        assert rows[0] == ["znver4", "failed", "-", "1.234", "ms", "-", "poor", "-"]
        assert [rows[1][0], rows[1][-1]] == ["aarch64", str(tmp_path / "won" / "aarch64")]
    assert [path.name for path in (tmp_path / "won").iterdir()] == ["aarch64"]


def jobs() -> list[str]:
    return [row["state"] for row in data(mallorn("jobs", "--json"))]


SAME = json.dumps(json.loads(ZEN), sort_keys=True, indent=1)


@pytest.mark.parametrize(
    ("targets", "spellings"),
    [((ZEN, ARM, ZEN), (ZEN, ZEN)), ((ZEN, SAME), (ZEN, SAME)), (("local", ZEN), ("local", ZEN))],
)
@pytest.mark.usefixtures("ended")  # jobs that are submitted in error end
def test_two_spellings_of_one_target_are_refused_before_anything_is_uploaded(
    coordinator: Coordinator, model: Path, tmp_path: Path, targets: Targets, spellings: tuple[str, str]
) -> None:
    with coordinator.database.transaction() as session:
        target_id = TargetRows(session).ensure(parse_target(ZEN)).id
        Devices(session).record_seen(SeenDevice("here", target_id, host_id(), "class", 2, "0.27.0", {}))
    result = tune(model, tmp_path / "won", targets=targets)
    refused(result, " and ".join(spellings) + " are the same target", "leave one of the two out")
    assert result.exit_code == ExitCode.USAGE
    assert data(mallorn("models", "--json")) == jobs() == []
    assert not (tmp_path / "won").exists()


@pytest.mark.usefixtures("ended")  # jobs that are submitted in error end
def test_a_target_that_differs_only_by_its_virtual_device_is_the_same(model: Path, tmp_path: Path) -> None:
    simulated = json.dumps(json.loads(ZEN) | {"device": "simulated"})
    words = "--option", "measurer=simulated"
    refused(tune(model, tmp_path / "won", *words, targets=(ZEN, simulated)), "are the same target")
    assert jobs() == []


@pytest.mark.usefixtures("ended")  # jobs that are submitted in error end
def test_a_target_that_is_not_known_is_refused_before_anything_is_uploaded(
    model: Path, tmp_path: Path
) -> None:
    refused(tune(model, tmp_path / "won", targets=(ZEN, "cuda")), "no device for cuda is online")
    assert data(mallorn("models", "--json")) == jobs() == []


def test_a_job_that_is_refused_cancels_those_before_it(
    start: Start, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MALLORN_URL", start(quota_jobs=1).url)
    result = tune(model, tmp_path / "won")
    (row,) = data(mallorn("jobs", "--json"))
    assert row["state"] == "cancelled"
    refused(result, "aarch64: ", f"job {row['id']} is cancelled")
    assert not (tmp_path / "won").exists()


@pytest.mark.usefixtures("ended")  # jobs that are submitted in error end
def test_the_directory_of_one_target_is_not_written_over(model: Path, tmp_path: Path) -> None:
    (tmp_path / "won" / "aarch64").mkdir(parents=True)
    (tmp_path / "won" / "aarch64" / "thesis.tex").touch()
    refused(tune(model, tmp_path / "won"), "other files than Mallorn's schedules", "aarch64")
    assert data(mallorn("models", "--json")) == jobs() == []


def test_ctrl_c_between_two_submissions_pauses_the_first_job(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    submit = Client.submit

    def interrupt(api: Client, model_id: str, target: str, *words: Any, **options: Any) -> Any:
        if "aarch64" in target:
            raise KeyboardInterrupt
        return submit(api, model_id, target, *words, **options)

    monkeypatch.setattr(Client, "submit", interrupt)
    result = tune(model, tmp_path / "won")
    assert result.exit_code == ExitCode.INTERRUPTED
    (row,) = data(mallorn("jobs", "--json"))
    assert row["state"] == "paused"
    assert f"mallorn resume {row['id']} --out {tmp_path / 'won' / 'znver4'} --url" in result.stderr


def test_ctrl_c_pauses_each_job_and_tells_how_it_goes_on(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*_shown: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(tune_and_resume, "show_until_ended", interrupt)
    result = tune(model, tmp_path / "won")
    assert result.exit_code == ExitCode.INTERRUPTED
    rows = data(mallorn("jobs", "--json"))
    assert [row["state"] for row in rows] == ["paused", "paused"]
    for row in rows:
        name = parse_target(row["target"]).short_name
        assert f"mallorn resume {row['id']} --out {tmp_path / 'won' / name} --url" in result.stderr


@pytest.mark.parametrize("terminal", [False, True])
def test_one_view_shows_all_jobs_until_the_last_has_ended(
    monkeypatch: pytest.MonkeyPatch, terminal: bool
) -> None:
    monkeypatch.setattr("mallorn.cli.live_view.REFRESH_SEC", 0.0)
    waits = job("tuning", waiting_because="waits for a device")
    quick, slow = Scripted(job("done", 64)), Scripted(waits, job("tuning", 32), job("done", 64))
    console = Console(file=io.StringIO(), force_terminal=terminal, width=160)
    show_until_ended({"znver4": FirstExport(quick, ""), "arm": FirstExport(slow, "")}, console)
    assert isinstance(console.file, io.StringIO)
    told = console.file.getvalue()
    assert (quick.status.state, slow.status.state) == ("done", "done")
    assert "znver4  done" in told
    assert "arm     done" in told
    assert terminal or "arm     tuning  0/64 trials  waits for a device\n" in told


@pytest.mark.parametrize(
    ("target", "name"),
    [
        (ZEN, "znver4"),
        (ARM, "aarch64"),
        ('{"kind":"llvm","num-cores":2}', "llvm"),
        ('{"kind":"llvm","mtriple":"x86_64-linux-gnu","mcpu":"x86-64","num-cores":2}', "x86-64"),
        ('{"kind":"llvm","mtriple":"x86_64-linux-gnu","mcpu":"x86-64-v2","num-cores":2}', "x86-64-v2"),
        ('{"kind":"llvm","mtriple":"arm64-linux","mcpu":"cortex-a72","num-cores":2}', "aarch64-cortex-a72"),
        ('{"kind":"llvm","mcpu":"znver4","num-cores":2,"device":"simulated"}', "znver4-simulated"),
        ('{"kind":"cuda","arch":"sm_90"}', "cuda-sm-90"),
        ('{"kind":"llvm","mcpu":"../../etc","num-cores":2}', "etc"),
    ],
)
def test_a_targets_name_is_short_and_stays_in_its_directory(target: str, name: str) -> None:
    assert parse_target(target).short_name == name


def test_targets_with_one_short_name_are_told_apart_by_their_keys() -> None:
    two, four = parse_target(ZEN), parse_target(ZEN.replace(":2", ":4"))
    named = name_targets([two, four], ["two", "four"])
    assert named == {f"znver4-{two.key}": two, f"znver4-{four.key}": four}


@pytest.fixture
def schedules(tmp_path: Path) -> Path:
    directory = tmp_path / "tuned"
    directory.mkdir()
    manifest = Manifest(model="m", target=json.loads(ZEN), recipe=StoredRecipe())
    (directory / "manifest.json").write_text(manifest.model_dump_json())
    return directory


def compiled(model: Path, schedules: Path, output: Path, *words: str) -> Any:
    cpus = "--for", "aarch64", "--for", "x86-64"
    return mallorn("compile", model, "--schedules", schedules, "-o", output, *cpus, *words)


@pytest.mark.parametrize("words", [(), ("--json",)])
def test_compile_writes_a_library_for_each_cpu_and_names_the_one_that_fails(
    model: Path, schedules: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]
) -> None:
    def compile_one(_model: Path, exported: Any, library: Path, **_: Any) -> dict[str, object]:
        if exported.target.short_name == "x86-64":
            raise MallornError("there is no linker", hint="install lld")
        library.parent.mkdir(parents=True)
        library.write_text("a library")
        return {"found": 3, "of": 4, "library": str(library)}

    monkeypatch.setattr(compile_and_bench, "_compile_one", compile_one)
    result = compiled(model, schedules, tmp_path / "libraries", *words)
    assert result.exit_code == ExitCode.FAILED
    library = tmp_path / "libraries" / "aarch64" / "model.so"
    assert library.is_file()
    if words:
        good, bad = json.loads(result.stdout)
        assert (good["target_name"], good["library"]) == ("aarch64", str(library))
        assert (bad["target_name"], bad["failure"]) == ("x86-64", "there is no linker")
    else:
        assert "error: x86-64: there is no linker" in result.stderr
        assert result.stdout.splitlines() == ["aarch64", "x86-64"]


@pytest.mark.parametrize(
    ("name", "words", "said"),
    [
        ("model.so", (), "no directory for libraries"),
        ("libraries", ("--for", "aarch64"), "aarch64 and aarch64 are the same target"),
        ("libraries", ("--check",), "for another machine"),
    ],
)
def test_compile_for_several_cpus_refuses_before_it_compiles(
    model: Path, schedules: Path, tmp_path: Path, name: str, words: tuple[str, ...], said: str
) -> None:
    refused(compiled(model, schedules, tmp_path / name, *words), said)
    assert not (tmp_path / name).exists()
