"""`rm`, `archive` and `models rm`: they ask, and say what stays."""

import pytest

from mallorn.cli.terminal import output
from mallorn.core.errors import ExitCode
from mallorn.core.states import JobState
from mallorn.db.repositories.jobs import Jobs
from tests.fixtures.answers import mallorn, refused
from tests.fixtures.coordinator import Coordinator, OwnedRows

pytestmark = pytest.mark.usefixtures("named_coordinator")


@pytest.fixture
def ended(owned: OwnedRows) -> str:
    owned.write(lambda session: Jobs(session).move_to_state(owned.job_id, list(JobState), JobState.DONE))
    return owned.job_id


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody sits there."""
    monkeypatch.setattr(output, "can_ask_user", lambda: True)


def test_without_a_terminal_nothing_is_deleted_unasked(ended: str) -> None:
    refused(mallorn("jobs", "rm", ended), f"mallorn jobs rm {ended} --yes")
    assert ended in mallorn("jobs").stdout


def test_yes_deletes_and_says_what_stays(ended: str) -> None:
    deleted = mallorn("jobs", "rm", ended, "--yes")
    assert (deleted.exit_code, deleted.stdout) == (0, "")
    assert f"mallorn dataset records --job {ended}" in deleted.stderr
    assert mallorn("jobs", "--json").stdout == "[]\n"


def test_the_exported_files_alone_go_where_that_is_said(owned: OwnedRows, ended: str) -> None:
    none = mallorn("jobs", "rm", ended, "--export", "--yes")
    assert "has no exported files" in none.stderr
    owned.write(lambda session: Jobs(session).store_report_columns(ended, export_uri="exports/of/it"))
    refused(mallorn("jobs", "rm", ended, "--export"), f"mallorn jobs rm --export {ended} --yes")
    deleted = mallorn("jobs", "rm", ended, "--export", "--yes")
    assert deleted.exit_code == 0
    assert f"mallorn show {ended}" in deleted.stderr
    assert "its exported schedules were deleted" in mallorn("show", ended).stderr


def test_what_a_deleted_job_measured_is_found_by_its_id(owned: OwnedRows) -> None:
    owned.measured_round(owned.ok(0))
    owned.write(lambda session: Jobs(session).move_to_state(owned.job_id, list(JobState), JobState.DONE))
    mallorn("jobs", "rm", owned.job_id, "--yes")
    assert owned.job_id in mallorn("dataset", "records", "--job", owned.job_id).stdout
    assert "there is no job" in mallorn("dataset", "records", "--job", "f" * 16).stderr


def test_a_person_is_asked(ended: str, terminal: None) -> None:
    kept = mallorn("jobs", "rm", ended, input="n\n")
    assert kept.exit_code == 1
    assert f"Delete {ended} (mlp, done)?" in kept.stderr
    assert "nothing was deleted" in kept.stderr
    assert mallorn("jobs", "rm", ended, input="y\n").exit_code == 0
    assert mallorn("show", ended).exit_code == ExitCode.NOT_FOUND


def test_one_unknown_job_among_several_deletes_none(ended: str) -> None:
    assert mallorn("jobs", "rm", ended, "nowhere", "--yes").exit_code == ExitCode.NOT_FOUND
    assert ended in mallorn("jobs").stdout


def test_a_running_job_says_how_to_end_it(owned: OwnedRows) -> None:
    refused(mallorn("jobs", "rm", owned.job_id, "--yes"), f"mallorn jobs cancel {owned.job_id}")


def test_archived_jobs_are_listed_apart(ended: str) -> None:
    assert "mallorn jobs --archived" in mallorn("jobs", "archive", ended).stderr
    assert ended not in mallorn("jobs").stdout
    assert ended in mallorn("jobs", "--archived").stdout
    assert mallorn("jobs", "archive", ended, "--undo").exit_code == 0
    assert ended in mallorn("jobs").stdout
    assert "no archived jobs" in mallorn("jobs", "--archived").stderr


def test_a_model_is_deleted_when_no_job_refers_to_it(coordinator: Coordinator, owned: OwnedRows) -> None:
    model_id = coordinator.upload()
    assert mallorn("models", "rm", model_id, "--yes").exit_code == 0
    assert model_id not in mallorn("models").stdout
    used = coordinator.submit().json()
    refused(mallorn("models", "rm", used["model_id"], "--yes"), f"mallorn jobs rm {used['id']}")
