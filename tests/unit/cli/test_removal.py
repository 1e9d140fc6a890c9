"""`rm`, `archive` and `models rm`: they ask, and say what stays."""

import pytest

from mallorn.cli.terminal import output
from mallorn.core.states import JobState
from mallorn.db.repositories.jobs import Jobs
from tests.fixtures.answers import Shell
from tests.fixtures.coordinator import Coordinator, OwnedRows
from tests.fixtures.kept import Kept

pytestmark = pytest.mark.usefixtures("named_coordinator")


@pytest.fixture
def ended(owned: OwnedRows, shell: Shell) -> OwnedRows:
    shell.names["JOB"] = owned.job_id
    owned.measured_round(owned.ok(0))
    owned.write(lambda session: Jobs(session).move_to_state(owned.job_id, list(JobState), JobState.DONE))
    return owned


def test_a_job_is_deleted_once_that_was_agreed_to_and_its_measurements_stay(
    ended: OwnedRows, shell: Shell, kept: Kept, monkeypatch: pytest.MonkeyPatch
) -> None:
    shell("without a terminal nothing is deleted unasked", "jobs rm JOB", "jobs")
    shell("one unknown job among several deletes none", "jobs rm JOB nowhere --yes", "jobs")
    shell("there are no exported files", "jobs rm JOB --export --yes")
    ended.write(lambda session: Jobs(session).store_report_columns(ended.job_id, export_uri="exports/of/it"))
    shell("exported files alone", "jobs rm JOB --export", "jobs rm JOB --export --yes", "show JOB")
    monkeypatch.setattr(output, "can_ask_user", lambda: True)
    shell("a person says no", "jobs rm JOB", input="n\n")
    shell("a person says yes", "jobs rm JOB", "show JOB", "jobs --json", input="y\n")
    shell("what it measured is found by its id", "dataset records --job JOB", "dataset records --job ffffff")
    kept("jobs-rm", shell.texts)


def test_archived_jobs_are_listed_apart(ended: OwnedRows, shell: Shell, kept: Kept) -> None:
    shell("archived", "jobs archive JOB", "jobs", "jobs --archived")
    shell("taken back", "jobs archive JOB --undo", "jobs", "jobs --archived")
    kept("jobs-archive", shell.texts)


def test_what_is_in_use_is_not_deleted(
    coordinator: Coordinator, owned: OwnedRows, shell: Shell, kept: Kept
) -> None:
    shell.names |= {"MODEL": coordinator.upload(), "JOB": owned.job_id}
    shell("a job that runs", "jobs rm JOB --yes")
    shell("a model that no job uses", "models rm MODEL --yes", "models")
    submitted = coordinator.submit().json()
    shell.names |= {"MODEL": submitted["model_id"], "JOB": submitted["id"]}
    shell("a model that a job uses", "models rm MODEL --yes")
    kept("rm-refused", shell.texts)
