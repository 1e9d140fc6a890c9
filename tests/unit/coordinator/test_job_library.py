"""The library of a job over HTTP: whole, from a byte on, not again, and why there is none."""

from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from mallorn.core.artifact_uris import library_uri
from mallorn.core.states import JobState
from mallorn.core.values.finish_report import FinishReport, StoredLibrary
from mallorn.core.values.graph_report import StoredRecipe
from mallorn.core.values.manifest import Manifest
from mallorn.db.repositories.jobs import Jobs
from tests.fixtures.coordinator import Coordinator, OwnedRows

CONTENT = bytes(range(256)) * 10
DIGEST = sha256(CONTENT).hexdigest()
TAG = f'"{DIGEST}"'


def end(owned: OwnedRows, **changes: Any) -> None:
    def change(session: Any) -> None:
        Jobs(session).store_report_columns(owned.job_id, **changes)
        Jobs(session).move_to_state(owned.job_id, list(JobState), JobState.DONE, "")

    owned.write(change)


@pytest.fixture
def export(coordinator: Coordinator, owned: OwnedRows) -> Path:
    """A job's export with a library."""
    directory = coordinator.artifacts / "exports" / owned.job_id / "t"
    directory.mkdir(parents=True)
    library = StoredLibrary(digest=DIGEST, bytes=len(CONTENT))
    manifest = Manifest(target={"kind": "llvm", "num-cores": 1}, recipe=StoredRecipe(), library=library)
    (directory / "manifest.json").write_text(manifest.model_dump_json())
    file = Path(library_uri(str(directory), DIGEST))
    file.parent.mkdir()
    file.write_bytes(CONTENT)
    end(owned, export_uri=str(directory), report=FinishReport(library=library))
    return directory


@pytest.fixture
def ask(coordinator: Coordinator, owned: OwnedRows) -> Any:
    return lambda **headers: coordinator.http.get(f"/jobs/{owned.job_id}/library", headers=headers)


def test_a_library_is_sent_with_its_digest(ask: Any, export: Path) -> None:
    answer = ask()
    assert (answer.status_code, answer.content) == (200, CONTENT)
    assert answer.headers["ETag"] == TAG
    assert answer.headers["Content-Length"] == str(len(CONTENT))
    assert "model.so" in answer.headers["Content-Disposition"]


def test_the_rest_is_sent_from_a_byte_on(ask: Any, export: Path) -> None:
    answer = ask(**{"Range": "bytes=1000-", "If-Range": TAG})
    assert (answer.status_code, answer.content) == (206, CONTENT[1000:])
    assert answer.headers["Content-Range"] == f"bytes 1000-{len(CONTENT) - 1}/{len(CONTENT)}"


@pytest.mark.parametrize(
    "headers",
    [
        {"Range": "bytes=1000-", "If-Range": '"another"'},
        {"Range": "bytes=999999999-"},
        {"Range": "bytes=1-5"},
        {"Range": "lines=1-"},
    ],
    ids=["another library by now", "beyond its end", "a part", "no bytes"],
)
def test_what_is_no_rest_of_this_library_is_sent_whole(ask: Any, export: Path, headers: Any) -> None:
    answer = ask(**headers)
    assert (answer.status_code, answer.content) == (200, CONTENT)


def test_who_has_it_is_not_sent_it_again(ask: Any, export: Path) -> None:
    answer = ask(**{"If-None-Match": TAG})
    assert (answer.status_code, answer.content) == (304, b"")


def test_a_job_without_one_says_why(ask: Any, owned: OwnedRows, export: Path) -> None:
    manifest = Manifest(target={"kind": "llvm", "num-cores": 1}, recipe=StoredRecipe())
    (export / "manifest.json").write_text(manifest.model_dump_json())
    end(owned, report=FinishReport(no_library_reason="The job was submitted with --no-library."))
    answer = ask()
    assert answer.status_code == 404
    expected = f"job {owned.job_id} stored no library. The job was submitted with --no-library."
    assert answer.json()["detail"] == expected
    assert "mallorn compile MODEL --schedules DIR -o model.so" in answer.json()["hint"]


def test_before_there_is_an_export_and_once_it_is_deleted_the_next_command_is_said(
    ask: Any, owned: OwnedRows
) -> None:
    answer = ask()
    assert (answer.status_code, answer.json()["hint"]) == (409, f"mallorn watch {owned.job_id}")
    end(owned, export_uri="/nowhere", export_deleted_at=1.0)
    assert "were deleted" in ask().json()["detail"]


def test_a_file_that_is_lost_is_told_before_anything_is_sent(ask: Any, export: Path) -> None:
    Path(library_uri(str(export), DIGEST)).unlink()
    answer = ask()
    assert answer.status_code == 404
    assert "the artifact store has no" in answer.json()["detail"]


def test_another_owner_learns_nothing_of_it(coordinator: Coordinator, owned: OwnedRows, export: Path) -> None:
    coordinator.new_key("eve")
    key = coordinator.new_key("eve").key
    assert coordinator.ask(key, "GET", f"/jobs/{owned.job_id}/library").status_code == 404


def test_the_library_is_deleted_with_the_export(
    coordinator: Coordinator, owned: OwnedRows, export: Path
) -> None:
    assert coordinator.http.delete(f"/jobs/{owned.job_id}/export").status_code == 200
    assert not Path(library_uri(str(export), DIGEST)).exists()
