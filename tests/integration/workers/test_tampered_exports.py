"""What a child plants among its files leaves neither by the export nor by a kept library."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mallorn.core.artifact_uris import open_artifact
from mallorn.core.states import JobState
from mallorn.core.values.manifest import DATABASE, RECORDS
from mallorn.db.repositories.archive_and_delete_jobs import Removals
from mallorn.db.repositories.jobs import Jobs
from mallorn.services.control.periodic_tasks import delete_expired_data
from tests.fixtures.finishing import export_of
from tests.fixtures.tuned_jobs import tuned
from tests.fixtures.work import finish

SECRET = "the key of the fleet"
OURS = ("apply.py", "graphc.zip", "manifest.json", "report.json", "requirements.txt")


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    path = tmp_path / "secret"
    path.write_text(SECRET)
    return path


def planted(workshop: Any, plant: Callable[[Path], object]) -> str:
    """The job's id: the child that writes its records plants something in their folder."""
    write = workshop.graph_answers["write_database"]

    def write_and_plant(directory: str, target: str, records: Any) -> Any:
        skipped = write(directory, target, records)
        plant(Path(directory))
        return skipped

    workshop.graph_answers["write_database"] = write_and_plant
    job = tuned(workshop)
    finish(workshop, job)
    return str(job)


def replaced(make: Callable[[Path, Path], object], secret: Path) -> Callable[[Path], None]:
    def plant(directory: Path) -> None:
        (directory / RECORDS).unlink()
        make(directory / RECORDS, secret)

    return plant


@pytest.mark.parametrize(
    "make",
    [
        pytest.param(lambda path, secret: path.symlink_to(secret), id="link"),
        pytest.param(lambda path, secret: path.hardlink_to(secret), id="hard link"),
        pytest.param(lambda path, _secret: os.mkfifo(path), id="pipe"),
        pytest.param(lambda path, _secret: path.mkdir(), id="folder"),
        pytest.param(lambda path, _secret: path.symlink_to("/dev/zero"), id="device"),
        pytest.param(lambda path, _secret: (path.touch(), os.truncate(path, 1 << 40)), id="huge"),
    ],
)
def test_a_job_whose_records_are_no_plain_files_fails_in_a_sentence_and_exports_nothing(
    workshop: Any, exported: Any, secret: Path, make: Callable[[Path, Path], object]
) -> None:
    job = planted(workshop, replaced(make, secret))
    row = workshop.read(lambda session: Jobs(session).get(job, None))
    assert row.state == JobState.FAILED
    assert RECORDS in row.ended_because
    assert row.ended_because.startswith(
        ("a child process left", "a child process did not leave a plain file")
    )
    assert row.export_uri is None


def test_what_lies_beside_the_records_is_neither_uploaded_nor_written_to(
    workshop: Any, exported: Any, secret: Path
) -> None:
    def plant(directory: Path) -> None:
        for name in (*OURS, "loaded_database_workload.json", "more"):
            (directory / name).symlink_to(secret)

    job = planted(workshop, plant)
    assert workshop.state(job) == JobState.DONE
    assert secret.read_text() == SECRET
    files = {path.name: path.read_bytes() for path in export_of(workshop, job).iterdir()}
    assert files.keys() == {*OURS, *DATABASE}
    assert not any(SECRET.encode() in content for content in files.values())


def test_an_export_is_not_changed_by_what_a_child_does_after_it_wrote_the_records(
    workshop: Any, exported: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    written: list[Path] = []
    scripts = workshop.graph_answers["scripts"]

    def tamper(**_given: Any) -> Any:
        for directory in written:
            (directory / RECORDS).write_text("something else")
            (directory / "apply.py").write_text("something else")
        return scripts

    workshop.graph_answers["scripts"] = tamper
    job = planted(workshop, written.append)
    assert workshop.state(job) == JobState.DONE
    assert (export_of(workshop, job) / RECORDS).read_text() == "[]"
    assert "something else" not in (export_of(workshop, job) / "apply.py").read_text()


def test_no_child_writes_where_another_ones_folder_lies(workshop: Any, exported: Any) -> None:
    """A link in place of a folder would open another one to the next process that is walled in there."""
    room, folders = workshop.room, list[Path]()
    job = planted(workshop, lambda directory: folders.append(directory.parent))
    assert workshop.state(job) == JobState.DONE
    (graphs,) = set(folders)
    written = {graphs, workshop.builder_folder, workshop.runner_folder}
    for each in written:
        assert each.is_relative_to(room)
        assert not any(parent in written for parent in each.parents)
    assert not graphs.exists()
    assert list(workshop.runner_folder.iterdir()) == []


def test_an_export_whose_script_was_changed_is_not_uploaded(
    workshop: Any, exported: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from mallorn.workers.finish import export_directory

    complete = export_directory.complete_export

    def complete_and_change(claimed: Any, winners: Any, directory: Path) -> None:
        complete(claimed, winners, directory)
        (directory / "apply.py").write_text("something else")

    monkeypatch.setattr(export_directory, "complete_export", complete_and_change)
    job = tuned(workshop)
    finish(workshop, job)
    row = workshop.read(lambda session: Jobs(session).get(job, None))
    assert (row.state, row.export_uri) == (JobState.FAILED, None)
    assert "apply.py is stored with other bytes" in row.ended_because


def test_files_that_a_killed_worker_uploaded_go_with_its_job(
    workshop: Any, exported: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from mallorn.workers.finish import export_directory

    class Killed(BaseException):
        """SIGKILL."""

    upload = export_directory.upload

    def upload_and_die(*given: Any) -> None:
        upload(*given)
        raise Killed

    job = tuned(workshop)
    with monkeypatch.context() as dying:
        dying.setattr(export_directory, "upload", upload_and_die)
        with pytest.raises(Killed):
            finish(workshop, job)
    left = export_of(workshop, job)
    assert (left / "apply.py").exists()
    workshop.write(lambda session: Jobs(session).move_to_state(job, [JobState.FINISHING], JobState.CANCELLED))
    workshop.write(lambda session: Removals(session).delete(job, None))
    delete_expired_data(workshop.database, workshop.settings)
    assert not left.exists()


def test_scripts_that_a_killed_worker_left_half_written_are_made_anew(workshop: Any, exported: Any) -> None:
    first = tuned(workshop)
    finish(workshop, first)
    files = sorted(Path(workshop.settings.artifacts, "scripts").iterdir())
    assert len(files) == 2
    files[0].write_bytes(files[0].read_bytes()[:-3])
    files[1].write_bytes(b"")
    workshop.write(lambda session: Jobs(session).move_to_state(first, [JobState.DONE], JobState.FINISHING))
    finish(workshop, first)
    assert workshop.state(first) == JobState.DONE
    assert all(json.loads(file.read_text())["trace"] == "steps" for file in files)
    with open_artifact(str(files[0])) as (store, path):
        assert store.exists(path)
