"""A job's handle: events across broken connections, waiting, and archives that are not trusted."""

import io
import zipfile
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

import mallorn.client.http_connection
import mallorn.client.job
from mallorn import Job, errors
from mallorn.client.http_connection import Connection, parse_events
from mallorn.client.job import JobFailed, unzip
from mallorn.core.errors import InvalidRequest, Unavailable
from mallorn.core.values.event import FinishingEvent, OtherEvent
from mallorn.core.values.verdict import Level, Verdict

pytestmark = pytest.mark.usefixtures("quick_retries")


def event(number: int) -> bytes:
    return f'id: {number}\nevent: round\ndata: {{"n": {number}}}\n\n'.encode()


class Flaky(httpx.SyncByteStream):
    """An answer that breaks off after some pieces."""

    def __init__(self, *pieces: bytes) -> None:
        self._pieces = pieces

    def __iter__(self) -> Iterator[bytes]:
        yield from self._pieces
        raise httpx.ReadError("connection reset")


class Script:
    """Answers for /events, one after the other; the job is `tuning` until the last was given."""

    def __init__(self, *streams: object) -> None:
        self._streams = list(streams)
        self.resumed_behind: list[str] = []

    def __call__(self, request: httpx.Request) -> httpx.Response:
        if not request.url.path.endswith("/events"):
            state = "tuning" if self._streams else "done"
            return httpx.Response(200, json={"id": "j", "state": state})
        self.resumed_behind.append(request.headers["Last-Event-ID"])
        stream = self._streams.pop(0)
        if isinstance(stream, Flaky):
            return httpx.Response(200, stream=stream)
        if isinstance(stream, int):
            return httpx.Response(stream)
        return httpx.Response(200, content=stream)


def job(answer: object, state: str = "tuning") -> Job:
    transport = httpx.MockTransport(answer)  # type: ignore[arg-type]
    return Job(
        Connection("http://c", transport=transport), {"id": "j", "state": state, "ended_because": "why"}
    )


def test_a_dropped_stream_resumes_behind_the_last_event_seen() -> None:
    script = Script(Flaky(event(1), event(2), b"id: 3\nevent: ro"), 503, event(3) + event(4))
    assert [seen.id for seen in job(script).events()] == [1, 2, 3, 4]
    assert script.resumed_behind == ["0", "2", "2"]


def test_a_stream_that_ends_before_the_job_is_opened_again() -> None:
    script = Script(event(1), event(2))
    assert [seen.id for seen in job(script).events()] == [1, 2]
    assert script.resumed_behind == ["0", "1"]


def test_a_coordinator_that_stays_away_ends_the_stream_with_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mallorn.client.http_connection, "RECONNECTS", 2)
    script = Script(Flaky(event(1)), 503, 503)
    events = job(script).events()
    assert next(events).payload == {"n": 1}
    with pytest.raises(Unavailable):
        next(events)
    assert script.resumed_behind == ["0", "1", "1"]


def test_those_whom_one_restart_cut_off_come_back_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: list[float] = []
    monkeypatch.setattr(mallorn.client.http_connection, "RETRY_SEC", 1.0)
    monkeypatch.setattr(mallorn.client.http_connection.time, "sleep", pauses.append)
    for _ in range(50):
        list(job(Script(event(1), event(2))).events())
    assert len(set(pauses)) > 10
    assert max(pauses) > 2 * min(pauses) > 0


def test_events_start_where_one_asks() -> None:
    script = Script(event(8))
    assert [seen.id for seen in job(script).events(after=7)] == [8]
    assert script.resumed_behind == ["7"]


def test_a_comment_is_no_event_and_a_torn_last_event_is_left_out() -> None:
    lines = [": still here", "", "id: 1", "event: a", "data: {}", "", "id: 2", "data: {}"]
    assert list(parse_events(lines)) == [None, (1, "a", {})]


@pytest.mark.parametrize("data", ['{"reason": "spent"}', '{"kind": "finishing", "reason": "spent"}'])
def test_an_event_is_a_value_of_its_kind_whether_its_data_names_it_or_not(data: str) -> None:
    (event,) = parse_events(["id: 1", "event: finishing", f"data: {data}", ""])
    assert event is not None
    assert (event.payload, event.parsed_event) == ({"reason": "spent"}, FinishingEvent(reason="spent"))


def test_an_event_of_a_newer_coordinator_is_told_as_it_came() -> None:
    (event,) = parse_events(["id: 1", "event: moved", 'data: {"to": "x"}', ""])
    assert event is not None
    assert event.parsed_event == OtherEvent(kind="moved", data={"to": "x"})


def test_wait_returns_the_job_once_it_is_done() -> None:
    states = iter(["queued", "tuning", "done"])
    waiting = job(lambda _: httpx.Response(200, json={"id": "j", "state": next(states)}))
    assert waiting.wait() is waiting
    assert waiting.body["state"] == "done"


def test_wait_tells_every_state_that_it_meets() -> None:
    told: list[str] = []
    job(Script(event(1), 503, event(2))).wait(progress=lambda status: told.append(status.state))
    assert (told[0], told[-1]) == ("tuning", "done")


def test_waiting_on_a_connection_of_ones_own_that_is_closed_ends_at_once() -> None:
    connection = Connection("http://c", transport=httpx.MockTransport(lambda _: httpx.Response(503)))
    connection.close()
    with pytest.raises(Unavailable, match="is closed"):
        Job(connection, {"id": "j", "state": "tuning"}).wait()


def test_wait_raises_for_a_job_that_failed() -> None:
    body = {"id": "j", "state": "failed", "ended_because": "no operator Foo"}
    with pytest.raises(JobFailed, match="no operator Foo") as caught:
        job(lambda _: httpx.Response(200, json=body)).wait()
    assert caught.value.hint == "mallorn show j"


def test_wait_gives_up_in_time() -> None:
    with pytest.raises(TimeoutError, match="still tuning") as caught:
        job(lambda _: httpx.Response(200, json={"id": "j", "state": "tuning"})).wait(timeout_sec=0)
    assert isinstance(caught.value, errors.TimedOut)
    assert caught.value.hint == "mallorn watch j"


def archive(*names: str) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as written:
        for name in names:
            written.writestr(name, name)
    return file.getvalue()


def test_where_the_schedules_cannot_be_written_the_next_command_is_said(tmp_path: Path) -> None:
    (tmp_path / "full").write_text("a file, where a directory should be")
    done = job(lambda _: httpx.Response(200, content=archive("fine")))
    with pytest.raises(InvalidRequest, match="cannot write the schedules to") as caught:
        done.schedules(tmp_path / "full")
    assert caught.value.hint == f"mallorn schedules {done.id} --out OTHER_DIR"


def test_schedules_are_unpacked_with_their_folders(tmp_path: Path) -> None:
    content = archive("manifest.json", "more/log.json")
    target = job(lambda _: httpx.Response(200, content=content)).schedules(tmp_path / "new" / "place")
    assert (target / "more" / "log.json").read_text() == "more/log.json"


def test_a_disk_that_fills_up_leaves_the_older_schedules_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "manifest.json").write_text("older")

    def fill(_archive: zipfile.ZipFile, place: str) -> None:
        Path(place, "manifest.json").write_text("half of a ne")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(zipfile.ZipFile, "extractall", fill)
    done = job(lambda _: httpx.Response(200, content=archive("manifest.json")))
    with pytest.raises(InvalidRequest, match="No space left"):
        done.schedules(tmp_path)
    assert [(each.name, each.read_text()) for each in tmp_path.iterdir()] == [("manifest.json", "older")]


@pytest.mark.parametrize("name", ["../outside", "/outside", "more/../../outside"])
def test_an_archive_that_reaches_outside_is_refused_whole(tmp_path: Path, name: str) -> None:
    with pytest.raises(InvalidRequest, match="outside"):
        unzip(archive("fine", name), tmp_path / "here")
    assert not (tmp_path / "here").exists()
    assert not (tmp_path / "outside").exists()


def test_what_is_no_archive_is_named(tmp_path: Path) -> None:
    with pytest.raises(Unavailable, match="not a zip archive"):
        unzip(b"<html>", tmp_path)


def test_a_handle_tells_its_verdict_once_the_job_has_ended() -> None:
    told = {"level": "good", "summary": "1.4 times faster than onnxruntime; done", "next": ""}
    body = {"id": "j", "state": "done", "verdict": told}
    connection = Connection("http://c:80/", transport=httpx.MockTransport(lambda _: httpx.Response(404)))
    done = Job(connection, body)
    assert done.verdict == Verdict(level=Level.GOOD, summary="1.4 times faster than onnxruntime; done")
    assert repr(done) == "<Job j done: 1.4 times faster than onnxruntime; done>"
    assert repr(Job(connection, body | {"state": "tuning"})) == "<Job j tuning>"
    assert done.page == "http://c:80/#/jobs/j"


def test_a_job_that_the_service_paused_ends_the_waiting_with_its_words_and_the_next_command() -> None:
    waiting = {"waiting_because": "waited 10 minutes for a device", "hint": "mallorn device"}
    body = {"id": "j", "state": "paused", "cause": "no_device", **waiting}
    stuck = job(lambda _request: httpx.Response(200, json=body))
    with pytest.raises(JobFailed, match="job j paused: waited 10 minutes for a device") as caught:
        stuck.wait(timeout_sec=60)
    assert caught.value.hint == "mallorn device"


def test_a_job_that_a_person_paused_is_waited_for() -> None:
    body = {"id": "j", "state": "paused", "waiting_because": "by Ada", "cause": "owner"}
    with pytest.raises(TimeoutError):
        job(lambda _request: httpx.Response(200, json=body)).wait(timeout_sec=0)
