"""What a job exports before its end is fetched at once, and told of in one line."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from mallorn.client.http_connection import LoggedEvent
from mallorn.client.job import Job
from mallorn.client.progress_lines import FirstExport
from mallorn.core.errors import InvalidRequest, MallornError, Unavailable
from mallorn.core.values.finish_report import FinishReport
from tests.fixtures.told import told_job

REFINED = told_job("finishing", exported=True)
FULL = InvalidRequest("cannot write the schedules to won: No space left on device")


class Exporting(Job):
    """A job with an event besides; `errors` are what its schedules raise, one a time."""

    def __init__(self, *errors: MallornError, **exported: Any) -> None:
        self.status = REFINED
        self.errors = list(errors)
        self.exported = exported or {"seconds": 12.3, "latency_ratio": 0.841}
        self.fetched: list[str | Path] = []

    def events(self, after: int = 0) -> Iterator[LoggedEvent]:
        yield LoggedEvent(1, "submitted", {})
        yield LoggedEvent(2, "exported", self.exported)
        raise AssertionError("what comes next is waited for until the job ends")

    def schedules(self, directory: str | Path) -> Path:
        if self.errors:
            raise self.errors.pop(0)
        self.fetched.append(directory)
        return Path(directory)


def test_it_is_fetched_and_told_once() -> None:
    job = Exporting()
    first = FirstExport(job, Path("won"))
    assert first.announce_first_export(REFINED) == "first export after 12 s, 0.84 of onnxruntime: won"
    assert first.announce_first_export(REFINED) == ""
    assert job.fetched == [Path("won")]


def test_without_a_time_beside_onnxruntime_none_is_told() -> None:
    assert (
        FirstExport(Exporting(seconds=7.0), Path("won")).announce_first_export(REFINED)
        == "first export after 7 s: won"
    )


def test_who_has_no_directory_is_told_the_command() -> None:
    job = Exporting()
    assert (
        FirstExport(job, "mallorn schedules 1f")
        .announce_first_export(REFINED)
        .endswith("onnxruntime: mallorn schedules 1f")
    )
    assert job.fetched == []


@pytest.mark.parametrize(
    "status",
    [
        told_job("finishing"),
        told_job("done"),
        told_job("tuning", exported=True, report=FinishReport()),
    ],
    ids=["not there yet", "ended", "goes on after its end"],
)
def test_nothing_else_is_a_first_export(status: Any) -> None:
    job = Exporting()
    assert FirstExport(job, Path("won")).announce_first_export(status) == ""
    assert job.fetched == []


def test_a_coordinator_that_is_away_is_asked_again() -> None:
    job = Exporting(Unavailable("http://c does not answer"))
    first = FirstExport(job, Path("won"))
    assert first.announce_first_export(REFINED) == ""
    assert first.announce_first_export(REFINED).endswith(": won")


def test_what_cannot_be_written_is_told_and_the_job_goes_on() -> None:
    job = Exporting(FULL)
    first = FirstExport(job, Path("won"))
    assert first.announce_first_export(REFINED) == FULL.message
    assert first.announce_first_export(REFINED) == ""
