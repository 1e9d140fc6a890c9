"""Where schedules are written to: not over another model's, not among other files; nothing empty stays."""

from collections.abc import Iterator
from pathlib import Path
from unittest.mock import Mock

import pytest
import typer

from mallorn.cli import tune_and_resume
from mallorn.cli.tune_and_resume import Ending, pause_on_interrupt, wait_and_fetch
from mallorn.client.coordinator_client import Client
from mallorn.client.http_connection import LoggedEvent
from mallorn.client.job import Job
from mallorn.client.out_directory import (
    check_directory,
    default_directory,
    model_id_of,
    out_directory,
)
from mallorn.core.errors import Conflict, InvalidRequest
from mallorn.core.states import JobState
from mallorn.core.targets import parse_target
from mallorn.core.values.graph_report import StoredRecipe
from mallorn.core.values.job import JobStatus
from mallorn.core.values.manifest import Manifest
from tests.fixtures.answers import mallorn, refused
from tests.fixtures.coordinator import Coordinator
from tests.fixtures.kept import Kept
from tests.fixtures.models import onnx_bytes

TARGET = {"kind": "llvm", "num-cores": 2}
OTHER_TARGET = parse_target({"kind": "llvm", "num-cores": 4})
MODEL_ID = "a" * 64


@pytest.fixture
def held(tmp_path: Path) -> Path:
    """A directory with one model's schedules."""
    directory = tmp_path / "tuned"
    directory.mkdir()
    manifest = Manifest(model=MODEL_ID, target=TARGET, recipe=StoredRecipe())
    (directory / "manifest.json").write_text(manifest.model_dump_json())
    return directory


def test_the_same_model_and_target_write_over_their_own(held: Path) -> None:
    (held / "notes.txt").touch()
    check_directory(held, False, lambda: MODEL_ID, parse_target(TARGET))


def test_another_models_and_another_targets_schedules_are_kept(held: Path) -> None:
    with pytest.raises(Conflict, match="schedules of another model") as caught:
        check_directory(held, False, lambda: "b" * 64)
    assert "--force" in caught.value.hint
    with pytest.raises(Conflict, match="schedules for another target"):
        check_directory(held, False, lambda: MODEL_ID, OTHER_TARGET)
    check_directory(held, True, lambda: "b" * 64, OTHER_TARGET)


@pytest.mark.parametrize("manifest", [None, "", "[]", "{}", '{"model": "m", "target": 1}'])
def test_other_files_are_not_written_among(tmp_path: Path, manifest: str | None) -> None:
    (tmp_path / "thesis.tex").touch()
    if manifest is not None:
        (tmp_path / "manifest.json").write_text(manifest)
    with pytest.raises(Conflict, match="other files than Mallorn's schedules"):
        check_directory(tmp_path, False, lambda: MODEL_ID)


def test_what_is_empty_or_not_there_is_free(tmp_path: Path) -> None:
    for directory in (tmp_path, tmp_path / "new"):
        check_directory(directory, False, lambda: MODEL_ID, OTHER_TARGET)


def test_a_directory_that_stays_empty_is_removed_with_its_parents(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt), out_directory(tmp_path / "a" / "b"):
        raise KeyboardInterrupt
    assert list(tmp_path.iterdir()) == []


def test_a_directory_with_something_in_it_or_made_by_others_stays(tmp_path: Path) -> None:
    (tmp_path / "theirs").mkdir()
    with out_directory(tmp_path / "theirs"):
        pass
    with out_directory(tmp_path / "ours" / "inner") as inner:
        (inner / "manifest.json").touch()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["ours", "theirs"]
    assert (tmp_path / "ours" / "inner" / "manifest.json").exists()


def test_what_cannot_be_made_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(InvalidRequest, match="cannot create"), out_directory(tmp_path / "file" / "inner"):
        pass


def test_tune_refuses_before_anything_starts(held: Path, model: Path, tmp_path: Path) -> None:
    refused(
        mallorn("tune", model, "--out", held, "--data", tmp_path / "data"),
        "schedules of another model",
        "next:  --out OTHER_DIR, or --force",
    )
    assert not (tmp_path / "data").exists()


def test_the_id_of_a_file_is_the_uploaded_models(coordinator: Coordinator, model: Path) -> None:
    with Client(coordinator.url) as client:
        assert client.upload(model).id == model_id_of(model)


def test_a_name_as_long_as_a_file_may_have_is_shortened(coordinator: Coordinator, tmp_path: Path) -> None:
    stem = "resnet-" + "x" * 233 + "-int8"
    (tmp_path / f"{stem}.onnx").write_bytes(onnx_bytes())
    with Client(coordinator.url) as client:
        job = client.submit(tmp_path / f"{stem}.onnx", TARGET, name=stem)
        (model,) = client.models()
    for name, ending in ((job.status.name, "-int8"), (model.name, "-int8.onnx")):
        assert len(name) <= 200
        assert name.startswith("resnet-xxx")
        assert name.endswith(ending)
    assert len(str(default_directory(stem))) < 255


def test_a_directory_is_named_in_no_more_bytes_than_file_systems_take(tmp_path: Path) -> None:
    directory = tmp_path / default_directory("\N{GREEK SMALL LETTER LAMDA}" * 200)
    directory.mkdir()
    assert directory.name.endswith("-tuned")


class Interrupted(Job):
    """A job that ended while it was left."""

    def __init__(self) -> None:
        self.status = JobStatus(id="j1", state=JobState.FINISHING)

    def pause(self) -> JobStatus:
        raise Conflict("job j1 is done")


def test_who_leaves_a_job_that_has_just_ended_is_told_the_way_to_its_schedules(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(tune_and_resume, "show_until_ended", Mock(side_effect=KeyboardInterrupt))
    monkeypatch.setattr(Interrupted, "page", "http://127.0.0.1/#/jobs/j1")
    with pytest.raises(typer.Exit):
        wait_and_fetch([Ending(Interrupted(), Path("won"), "m.onnx", ("--out", "won"))], False, False)
    told = capsys.readouterr().err
    assert "the job had just ended" in told
    assert "mallorn resume j1 --out won" in told


class Exported(Interrupted):
    """A job whose first version is exported in the moment in which it is left."""

    def __init__(self) -> None:
        self.status = JobStatus(id="j1", state=JobState.FINISHING, exported=True)

    def events(self, after: int = 0) -> Iterator[LoggedEvent]:
        yield LoggedEvent(1, "exported", {"seconds": 1.0})

    def schedules(self, directory: str | Path) -> Path:
        manifest = Manifest(job="j1", model=MODEL_ID, target=TARGET, recipe=StoredRecipe())
        Path(directory, "manifest.json").write_text(manifest.model_dump_json())
        return Path(directory)


def test_who_leaves_a_job_is_told_how_to_use_a_version_of_it(
    held: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], kept: Kept
) -> None:
    texts = {}
    (tmp_path / "new").mkdir()
    for state, folder, job in (
        ("before it is followed", Path("won"), Interrupted()),
        ("its directory holds the schedules of another job", held, Interrupted()),
        ("a version comes in the moment of ctrl-c", tmp_path / "new", Exported()),
        ("a version is in its directory", tmp_path / "new", Interrupted()),
    ):
        with pytest.raises(typer.Exit) as left, pause_on_interrupt([Ending(job, folder, "m.onnx")]):
            raise KeyboardInterrupt
        assert left.value.exit_code == 130
        texts[state] = capsys.readouterr().err.replace(str(tmp_path), "PLACE")
    kept("left-tuning", texts)
