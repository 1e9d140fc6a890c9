"""`mallorn retune`: which workloads are tuned, with which options, and that nothing is where all replay."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from mallorn.cli.schedule_directory import read_schedule_directory
from mallorn.cli.verify_and_retune import options_of
from mallorn.core.job_options import MOST_PATTERNS, JobOptions
from tests.fixtures.answers import data, mallorn, refused
from tests.unit.cli.test_exported import TARGET, write
from zoo import MODELS


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "m.onnx"
    path.write_bytes(MODELS["mlp"](0).SerializeToString())
    return path


@pytest.fixture
def tuned(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """What is given to `tune`."""
    given: list[dict[str, Any]] = []

    def tune(model: Path, target: list[str], *, auto: bool, out: Path, force: bool, **more: Any) -> None:
        given.append({"model": model, "target": target[0], "auto": auto, "out": out, "force": force, **more})

    monkeypatch.setattr("mallorn.cli.verify_and_retune.tune", tune)
    return given


def missing(monkeypatch: pytest.MonkeyPatch, *names: str) -> None:
    """Let the compiler find no record for these workloads."""

    @contextmanager
    def local_model(*_: Any) -> Iterator[Any]:
        compiled = SimpleNamespace(missing=list(names))
        yield SimpleNamespace(folder=Path("scratch"), compile=lambda *_: compiled)

    monkeypatch.setattr("mallorn.cli.verify_and_retune.local_model", local_model)


def test_only_what_has_no_schedule_is_tuned_for_the_directorys_target(
    tmp_path: Path, model: Path, tuned: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    missing(monkeypatch, "fused[0]", "new")
    imported: list[Path] = []
    monkeypatch.setattr("mallorn.cli.verify_and_retune.import_logs", lambda *given: imported.append(given[1]))
    result = mallorn("retune", write(tmp_path), model, "--trials", "9", "--data", tmp_path / "data")
    assert result.exit_code == 0, result.stderr
    [given] = tuned
    assert json.loads(given["target"]) == TARGET
    assert (given["auto"], given["out"], given["force"]) == (False, tmp_path, True)
    assert given["options"] == {"only": ["fused[[]0]", "new"]}
    assert imported == [tmp_path]


def test_where_everything_replays_nothing_is_tuned(
    tmp_path: Path, model: Path, tuned: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    missing(monkeypatch)
    assert data(mallorn("retune", write(tmp_path), model, "--json")) == {"missing": []}
    assert tuned == []


def test_a_service_elsewhere_gets_no_records_from_here(
    tmp_path: Path, model: Path, tuned: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    missing(monkeypatch, "new")
    monkeypatch.setattr("mallorn.cli.verify_and_retune.import_logs", lambda *_: pytest.fail("imported"))
    result = mallorn("retune", write(tmp_path), model, "--url", "https://tuner.example")
    assert result.exit_code == 0, result.stderr
    assert [given["auto"] for given in tuned] == [True], "without a budget while trials are worth their time"


def test_the_shapes_are_those_of_the_manifest_and_many_workloads_are_not_named(tmp_path: Path) -> None:
    exported = read_schedule_directory(write(tmp_path, input_shapes={"x": [1, 8]}), None).manifest
    assert options_of(exported, ["a"]) == {"only": ["a"], "input_shapes": {"x": [1, 8]}}
    assert "only" not in options_of(exported, ["a"] * (MOST_PATTERNS + 1))
    JobOptions.model_validate(options_of(exported, ["a"]))


def test_a_directory_that_is_not_there_is_refused(tmp_path: Path, model: Path) -> None:
    refused(mallorn("retune", tmp_path / "nowhere", model), "nowhere")
