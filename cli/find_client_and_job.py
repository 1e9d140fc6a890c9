"""Clients for commands that only read: they ask a coordinator, or read the files here."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import httpx

from mallorn.cli.terminal.output import print_note
from mallorn.client.coordinator_client import Client
from mallorn.client.job import Job
from mallorn.core.address_checks import NotYours, check_own_service
from mallorn.core.errors import Conflict, NotFound, Unavailable
from mallorn.core.settings import DEFAULT_URL, Settings
from mallorn.core.version import API
from mallorn.stack.data_directory import DataDir
from mallorn.stack.read_only_coordinator import HERE, add_data_option_to_hints, data_option, serve_in_process
from mallorn.wording.format_values import format_spent_trials

PROBE_SEC: Final = 2.0
FIRST_STEP: Final = "mallorn tune model.onnx"


@dataclass(frozen=True)
class ReadFrom:
    """A client that only reads; `still` is the data directory if no service runs on it."""

    api: Client
    data_option: str = ""  # names the same data directory to the next command; may be empty
    still: DataDir | None = None


@contextmanager
def open_source(url: str | None, api_key: str | None, data: Path | None = None) -> Iterator[ReadFrom]:
    """Yield a client of the coordinator at `url` or on `data`, or one that reads files."""
    directory = DataDir((data.expanduser() if data else Settings().data_dir).absolute())
    stack = None if url else directory.read_running_stack()
    uses_defaults = data is None and "MALLORN_DATA_DIR" not in os.environ
    if url is None and stack is None and uses_defaults and _answers(DEFAULT_URL):
        url = DEFAULT_URL
    if url:
        with Client(url, api_key) as api:
            yield ReadFrom(api)
        return
    with add_data_option_to_hints(directory):
        if stack:
            with Client(stack.url, api_key) as api:
                yield ReadFrom(api, data_option(directory))
            return
        with serve_in_process(directory) as transport, Client(HERE, api_key, transport) as api:
            yield ReadFrom(api, data_option(directory), directory)


@contextmanager
def open_reader(url: str | None, api_key: str | None, data: Path | None = None) -> Iterator[Client]:
    """Yield only the client of `open_source`."""
    with open_source(url, api_key, data) as origin:
        yield origin.api


def find_job(api: Client, job: str | None) -> Job:
    """Return the job with this id or id prefix, by default the newest. Raises NotFound."""
    if job is not None:
        return api.job(job)
    newest = api.newest_job()
    if newest is None:
        raise NotFound("no jobs yet", hint=FIRST_STEP)
    print_note(f"job {newest.id} ({newest.status.name}), the newest")
    return newest


def check_ended_job_has_service(origin: ReadFrom, job: Job) -> None:
    """Raise Conflict if the job has ended and no service runs that would say so."""
    if origin.still is not None and job.status.state.is_final:
        raise Conflict(f"job {job.id} has ended already: {job.status.state}", hint=f"mallorn show {job.id}")


def check_active_job_has_service(origin: ReadFrom, job: Job) -> None:
    """Raise Unavailable, with the next command, if an unfinished job lacks a service."""
    state = job.status.state
    if origin.still is None or state.is_final:
        return
    raise Unavailable(
        f"job {job.id} does not go on after {format_spent_trials(job.status)} trials ({state}): "
        f"no service runs on {origin.still.path}",
        hint=f"mallorn resume {job.id}",
    )


def _answers(url: str) -> bool:
    """Return whether this user's coordinator answers; print a note if it is another's."""
    try:
        check_own_service(url)
        health = httpx.get(f"{url}{API}/healthz", timeout=PROBE_SEC, trust_env=False).json()
    except NotYours as error:
        print_note(f"{error.message}; to use it nevertheless, add   --url {url}")
        return False
    except (httpx.TransportError, ValueError):
        return False
    return isinstance(health, dict) and health.get("status") == "ok"
