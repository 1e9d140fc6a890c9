"""Commands that take several jobs, labels, and the filters of `mallorn jobs`."""

import json

import pytest

from mallorn.core.states import JobState
from mallorn.db.repositories.jobs import Jobs
from tests.fixtures.answers import data, mallorn, refused
from tests.fixtures.coordinator import Coordinator

pytestmark = [
    pytest.mark.usefixtures("named_coordinator"),
    pytest.mark.parametrize("database_url", ["sqlite"], indirect=True),
]


@pytest.fixture
def ids(coordinator: Coordinator) -> list[str]:
    return [str(coordinator.submit(name=name).json()["id"]) for name in ("first", "second", "third")]


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


def test_those_that_cannot_be_are_told_and_the_others_are(coordinator: Coordinator, ids: list[str]) -> None:
    assert mallorn("jobs", "cancel", ids[1]).exit_code == 0
    for verb, left in (("pause", JobState.PAUSED), ("cancel", JobState.CANCELLED)):
        result = mallorn("jobs", verb, ids[0], ids[1], "nowhere", ids[2])
        assert result.exit_code == 1
        assert f"job {ids[1]} is cancelled" in result.stderr
        assert "there is no job nowhere" in result.stderr
        assert "2 of 4 jobs stay as they are" in result.stderr
        assert states(coordinator, ids) == [left, JobState.CANCELLED, left]


def test_archive_and_rm_go_on_after_one_that_has_not_ended(coordinator: Coordinator, ids: list[str]) -> None:
    mallorn("jobs", "cancel", ids[0], ids[2])
    result = mallorn("jobs", "archive", *ids, "--json")
    assert result.exit_code == 1
    assert [job["id"] for job in json.loads(result.stdout)] == [ids[0], ids[2]]
    assert f"job {ids[1]} is queued" in result.stderr
    result = mallorn("jobs", "rm", *ids, "--yes")
    assert result.exit_code == 1
    assert [job["id"] for job in data(mallorn("jobs", "--json"))] == [ids[1]]
    assert data(mallorn("jobs", "--archived", "--json")) == []


def test_labels_are_set_shown_removed_and_listed_by(ids: list[str]) -> None:
    said = mallorn("jobs", "label", ids[0], "team=vision", "nightly")
    assert f"labels of {ids[0]}: nightly, team=vision" in said.stderr
    mallorn("jobs", "label", ids[1], "team=speech")
    assert [job["name"] for job in data(mallorn("jobs", "--label", "team", "--json"))] == ["second", "first"]
    words = ("jobs", "--label", "team=vision", "--label", "nightly", "--name", "FIR", "--state", "queued")
    table = mallorn(*words).stdout
    assert "LABELS" in table
    assert "nightly, team=vision" in table
    assert "second" not in table
    assert "nightly, team=vision" in mallorn("show", ids[0]).stdout
    assert data(mallorn("jobs", "label", ids[0], "--remove", "nightly", "--json"))["labels"] == {
        "team": "vision"
    }
    assert "no such jobs" in mallorn("jobs", "--label", "nightly").stderr
    refused(mallorn("jobs", "label", ids[0], "a b"), "'a b' is no label")


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
    refused(mallorn("submit", model, "--target", target, "--label", "=x"), "next:  nightly, or team=vision")
