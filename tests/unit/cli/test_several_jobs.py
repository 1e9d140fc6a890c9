"""Commands that take several jobs, labels, and the filters of `mallorn jobs`."""

import json

import pytest

from mallorn.core.states import JobState
from mallorn.db.repositories.jobs import Jobs
from tests.fixtures.answers import Shell, data, mallorn
from tests.fixtures.coordinator import Coordinator
from tests.fixtures.kept import Kept

pytestmark = [
    pytest.mark.usefixtures("named_coordinator"),
    pytest.mark.parametrize("database_url", ["sqlite"], indirect=True),
]


@pytest.fixture
def ids(coordinator: Coordinator, shell: Shell) -> list[str]:
    names = ("first", "second", "third")
    shell.names |= {name.upper(): str(coordinator.submit(name=name).json()["id"]) for name in names}
    return [str(shell.names[name.upper()]) for name in names]


def states(coordinator: Coordinator, ids: list[str]) -> list[str]:
    with coordinator.database.session() as session:
        return [Jobs(session).get(job, None).state for job in ids]


def test_several_are_paused_and_cancelled(coordinator: Coordinator, ids: list[str]) -> None:
    assert mallorn("jobs", "pause", *ids).exit_code == 0
    assert states(coordinator, ids) == [JobState.PAUSED] * 3
    result = mallorn("jobs", "cancel", *ids, "--json")
    assert states(coordinator, ids) == [JobState.CANCELLED] * 3
    decoder, text, found = json.JSONDecoder(), result.stdout.strip(), []
    while text:
        body, end = decoder.raw_decode(text)
        found.append(body["id"])
        text = text[end:].strip()
    assert found == ids


def test_those_that_cannot_be_are_told_and_the_others_are(
    coordinator: Coordinator, ids: list[str], shell: Shell, kept: Kept
) -> None:
    assert mallorn("jobs", "cancel", ids[1]).exit_code == 0
    for verb, left in (("pause", JobState.PAUSED), ("cancel", JobState.CANCELLED)):
        shell(verb, f"jobs {verb} FIRST SECOND nowhere THIRD")
        assert states(coordinator, ids) == [left, JobState.CANCELLED, left]
    kept("several-jobs", shell.texts)


def test_archive_and_rm_go_on_after_one_that_has_not_ended(ids: list[str], shell: Shell, kept: Kept) -> None:
    mallorn("jobs", "cancel", ids[0], ids[2])
    shell("archive", "jobs archive FIRST SECOND THIRD", "jobs", "jobs --archived")
    shell("rm", "jobs rm FIRST SECOND THIRD --yes", "jobs", "jobs --archived")
    kept("several-jobs-removed", shell.texts)


def test_labels_are_set_shown_removed_and_listed_by(ids: list[str], shell: Shell, kept: Kept) -> None:
    shell("set", "jobs label FIRST team=vision nightly", "jobs label SECOND team=speech")
    filters = "--label team=vision --label nightly --name FIR --state queued"
    shell("listed by", "jobs --label team", f"jobs {filters}", "show FIRST")
    shell("removed", "jobs label FIRST --remove nightly", "jobs --label nightly")
    shell("no label", "jobs label FIRST 'a b'", "jobs label FIRST =x")
    kept("labels", shell.texts)


def test_jobs_are_listed_by_time_and_model(ids: list[str]) -> None:
    (job,) = data(mallorn("jobs", "--name", "first", "--json"))
    assert len(data(mallorn("jobs", "--model", job["model_id"][:6], "--since", "2020-01-01", "--json"))) == 3
    assert data(mallorn("jobs", "--before", "2020-01-01T12:30", "--json")) == []
    assert data(mallorn("jobs", "--owner", "grace", "--json")) == []
    assert mallorn("jobs", "--since", "yesterday").exit_code == 2


def test_submit_takes_labels(model: object) -> None:
    target = '{"kind":"llvm","num-cores":2}'
    words = ("submit", model, "--target", target, "--label", "team=vision", "--json")
    assert data(mallorn(*words))["labels"] == {"team": "vision"}
