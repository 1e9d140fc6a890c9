"""Exit codes by class of error, and errors as JSON."""

import json
from unittest.mock import Mock

import httpx
import pytest

from mallorn import errors
from mallorn.cli import find_client_and_job
from mallorn.client.http_connection import error_from
from mallorn.core.errors import ExitCode, MallornError
from tests.fixtures.answers import mallorn
from tests.fixtures.coordinator import Coordinator

NOWHERE = "http://127.0.0.1:9"
CODES = {
    "MallornError": 1,
    "InvalidRequest": 2,
    "InvalidModel": 2,
    "NotFound": 3,
    "Unauthorized": 4,
    "Forbidden": 4,
    "Conflict": 5,
    "TooMany": 5,
    "Unavailable": 6,
    "NoDevice": 6,
    "TimedOut": 7,
    "JobFailed": 8,
}


@pytest.mark.parametrize("name", CODES)
def test_a_command_ends_with_the_code_of_its_errors_class(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        find_client_and_job,
        "open_source",
        Mock(side_effect=getattr(errors, name)("so it is", hint="mallorn jobs")),
    )
    result = mallorn("show", "j")
    assert (result.exit_code, result.stderr) == (CODES[name], "error: so it is\nnext:  mallorn jobs\n")
    told = mallorn("show", "j", "--json")
    assert told.exit_code == CODES[name]
    answer = {"kind": name, "message": "so it is", "hint": "mallorn jobs", "exit_code": CODES[name]}
    assert (json.loads(told.stderr), told.stdout) == (answer, "")


def test_every_error_has_a_code_of_the_table() -> None:
    classes = [MallornError]
    for each in classes:
        classes += each.__subclasses__()
    assert len(classes) > 30
    assert all(isinstance(each.exit_code, ExitCode) for each in classes)


def test_wrong_usage_is_json_too() -> None:
    result = mallorn("jobs", "--state", "lost", "--json")
    said = json.loads(result.stderr)
    assert (result.exit_code, said["kind"], said["exit_code"]) == (2, "InvalidRequest", 2)
    assert "'lost'" in said["message"]


def test_without_json_wrong_usage_is_told_in_words() -> None:
    assert "jobs list --help' for help" in mallorn("jobs", "--state", "lost").stderr


def test_a_refusals_request_id_is_printed(monkeypatch: pytest.MonkeyPatch, coordinator: Coordinator) -> None:
    request = httpx.Request("GET", NOWHERE)
    body = {"error": "NotFound", "detail": "there is no job j", "request_id": "r-1"}
    error = error_from(httpx.Response(404, json=body, request=request))
    monkeypatch.setattr(find_client_and_job, "open_source", Mock(side_effect=error))
    assert json.loads(mallorn("show", "j", "--json").stderr)["request_id"] == "r-1"


def test_what_does_not_answer_is_unreachable() -> None:
    assert mallorn("jobs", "--url", NOWHERE).exit_code == ExitCode.UNREACHABLE
