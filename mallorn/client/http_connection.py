"""HTTP connection to a coordinator: requests, retries, server-sent events and errors."""

import json
import math
import random
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from hashlib import file_digest
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar
from uuid import uuid4

import httpx
from pydantic import JsonValue, ValidationError

from mallorn.core import errors
from mallorn.core.address_checks import is_loopback
from mallorn.core.errors import MallornError, Unavailable
from mallorn.core.private_files import open_output
from mallorn.core.values.base import Value
from mallorn.core.values.event import JobEvent, read_event
from mallorn.core.version import API, VERSION

TIMEOUT_SEC: Final = 30.0
RETRIES: Final = 3  # of a GET request that the coordinator throttles
POST_RETRIES: Final = 2  # of a repeatable POST request that got no answer
DOWNLOAD_RETRIES: Final = 5  # of a download that broke off without having received anything more
RECONNECTS: Final = 12  # of an event stream, which take some two minutes
RETRY_SEC: Final = 0.5  # the first pause; each later one is twice as long
LONGEST_RETRY_SEC: Final = 15.0
LONGEST_RETRY_AFTER_SEC: Final = 60.0
PROXY_LIMIT: Final = "raise the limit of the proxy in front of it   (nginx: client_max_body_size)"
Json = dict[str, JsonValue]
V = TypeVar("V", bound=Value)
_BY_NAME: Final[dict[str, type[MallornError]]] = {
    name: value
    for name, value in vars(errors).items()
    if isinstance(value, type) and issubclass(value, MallornError)
}
# Error classes by HTTP status; 409 gives Conflict, the first of its two classes.
_BY_STATUS: Final = {
    value.status_code: value
    for value in reversed(_BY_NAME.values())
    if value.__base__ is MallornError and "status_code" in vars(value)
}


class AnswerLost(Unavailable):
    """The connection broke, or a proxy gave up, before the coordinator answered."""


class Retries:
    """Pauses between attempts of a request, which double each time, with random jitter."""

    def __init__(self, limit: int, deadline_sec: float = math.inf) -> None:
        self._most = limit
        self._deadline_sec = deadline_sec
        self.failures = 0

    def pause_after(self, error: MallornError) -> None:
        """Sleep before the next attempt: ever longer, or as long as the coordinator asks.

        Raises `error` after too many failures in a row.
        """
        self.failures += 1
        if self.failures > self._most:
            raise error
        pause_sec = min(LONGEST_RETRY_SEC, RETRY_SEC * 2 ** (self.failures - 1))
        pause_sec *= random.uniform(0.5, 1.5)  # noqa: S311 - not for secrets
        if isinstance(error, errors.TooMany):
            pause_sec = min(error.retry_sec, LONGEST_RETRY_AFTER_SEC)
        time.sleep(max(0.0, min(pause_sec, self._deadline_sec - time.monotonic())))


class LoggedEvent(NamedTuple):
    """An event of a job. Its ids count up without gaps; `payload` is its data as JSON."""

    id: int
    kind: str
    payload: Json

    @property
    def parsed_event(self) -> JobEvent:
        """The event as an instance of the class for its kind."""
        return read_event(self.kind, self.payload)


class Connection:
    """HTTP connection to one coordinator, authenticated with an API key if one is given."""

    def __init__(
        self, url: str, api_key: str | None = None, transport: httpx.BaseTransport | None = None
    ) -> None:
        self.url = url.rstrip("/")
        headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
        with self._explained():
            self._http = httpx.Client(
                base_url=self.url,
                headers=headers,
                timeout=TIMEOUT_SEC,
                transport=transport,
                # A proxy cannot reach our loopback, whatever HTTP_PROXY says.
                trust_env=not is_loopback(httpx.URL(self.url).host),
            )

    def close(self) -> None:
        self._http.close()

    @property
    def is_closed(self) -> bool:
        return self._http.is_closed

    def get(self, path: str, **params: Any) -> Any:
        """Send a GET request and return the JSON; parameters that are None are omitted."""
        return self._json("GET", path, params={k: v for k, v in params.items() if v is not None})

    def value(self, kind: type[V], path: str, **params: Any) -> V:
        """Send a GET request and parse the answer. Raises Unavailable if it is no `kind`."""
        return self.parse_as(kind, self.get(path, **params))

    def values(self, kind: type[V], path: str, **params: Any) -> list[V]:
        """Send a GET request for a list without pages and parse its items."""
        return [self.parse_as(kind, item) for item in self.get(path, **params)["items"]]

    def iterate_values(self, kind: type[V], path: str, **params: Any) -> Iterator[V]:
        """Iterate over the parsed items of a paged list, fetching pages as needed."""
        return (self.parse_as(kind, row) for row in self.iterate_json(path, **params))

    def iterate_json(self, path: str, **params: Any) -> Iterator[Json]:
        """Iterate over the items of a paged list as JSON, fetching pages as needed."""
        cursor = None
        while True:
            page = self.get(path, cursor=cursor, **params)
            yield from page["items"]
            cursor = page["next_cursor"]
            if cursor is None:
                return

    def parse_as(self, kind: type[V], body: object) -> V:
        """Parse the coordinator's JSON as `kind`. Raises Unavailable if it does not fit."""
        try:
            return kind.model_validate(body)
        except ValidationError as error:
            wrong = ".".join(map(str, error.errors(include_url=False)[0]["loc"]))
            raise Unavailable(
                f"{self.url} does not answer like a Mallorn coordinator of version {VERSION}: {wrong}",
                hint="check --url or MALLORN_URL",
            ) from error

    def post(
        self, path: str, body: Any = None, is_repeatable: bool = False, read_sec: float = TIMEOUT_SEC
    ) -> Any:
        """Send a POST request and return the JSON.

        If `is_repeatable`, it is retried after a lost answer; an idempotency key keeps the
        coordinator from acting twice.
        """
        timeout = httpx.Timeout(TIMEOUT_SEC, read=read_sec)
        if not is_repeatable:
            return self._json("POST", path, json=body, timeout=timeout)
        retries, headers = Retries(POST_RETRIES), {"Idempotency-Key": uuid4().hex}
        while True:
            try:
                return self._json("POST", path, json=body, headers=headers, timeout=timeout)
            except Unavailable as error:
                retries.pause_after(error)

    def patch(self, path: str, body: Any) -> Any:
        return self._json("PATCH", path, json=body)

    def delete(self, path: str) -> Any:
        """Send a DELETE request; return the JSON of what remains, such as a job, or None."""
        return self._json("DELETE", path)

    def put(
        self,
        path: str,
        content: Iterator[bytes],
        size_bytes: int,
        timeout_sec: float | None = None,
        **params: str,
    ) -> Any:
        # Given the length, the coordinator can reject an upload that is too large at once.
        headers = {"Content-Type": "application/octet-stream", "Content-Length": str(size_bytes)}
        return self._json("PUT", path, content=content, params=params, headers=headers, timeout=timeout_sec)

    @contextmanager
    def stream(
        self, path: str, headers: dict[str, str] | None = None, read_sec: float = TIMEOUT_SEC
    ) -> Iterator[httpx.Response]:
        """Yield a GET response to read in pieces; `read_sec` is the timeout for each piece."""
        timeout = httpx.Timeout(TIMEOUT_SEC, read=read_sec)
        with (
            self._explained(),
            self._http.stream("GET", API + path, headers=headers, timeout=timeout) as response,
        ):
            if response.is_error:
                response.read()
                raise error_from(response)
            yield response

    def download(self, path: str, file: Path) -> None:
        """Download a file whose ETag is its SHA-256; do nothing if `file` is the same.

        The rest is fetched after a broken connection. The file is replaced only once the
        digest of all bytes is right. Raises Unavailable if it is wrong or the connection
        keeps breaking.
        """
        part, etag, retries = file.with_name(f".{file.name}.part"), "", Retries(DOWNLOAD_RETRIES)
        own_etag = f'"{sha256_of(file)}"' if file.is_file() else None
        with open(open_output(part), "wb") as part_file:
            try:
                while True:
                    headers = {"Range": f"bytes={part_file.tell()}-", "If-Range": etag} if etag else {}
                    headers |= {} if own_etag is None else {"If-None-Match": own_etag}
                    try:
                        with self.stream(path, headers) as response:
                            if response.status_code == httpx.codes.NOT_MODIFIED:
                                return
                            if response.status_code != httpx.codes.PARTIAL_CONTENT:
                                part_file.seek(0)
                                part_file.truncate()
                            etag = response.headers.get("ETag", "")
                            for chunk in response.iter_bytes():
                                part_file.write(chunk)
                                retries.failures = 0
                        break
                    except AnswerLost as error:
                        retries.pause_after(error)
                part_file.flush()
                if etag != f'"{sha256_of(part)}"':
                    message = f"what {self.url} sent of {path} is damaged: its digest is wrong"
                    raise Unavailable(message, hint="type the command again")
                part.replace(file)
            finally:
                part.unlink(missing_ok=True)

    def events(
        self, path: str, is_over: Callable[[], bool], after_id: int = 0, deadline_sec: float = math.inf
    ) -> Iterator[LoggedEvent | None]:
        """Yield the events after an id until `is_over`; None means connected, but no event.

        Reconnects if the coordinator restarts. Raises TimeoutError after the deadline, and
        Unavailable if the coordinator stays away.
        """
        retries = Retries(RECONNECTS, deadline_sec)
        while True:
            read_sec = min(TIMEOUT_SEC, max(0.0, deadline_sec - time.monotonic()))
            try:
                with self.stream(path, {"Last-Event-ID": str(after_id)}, read_sec) as response:
                    yield None
                    for event in parse_events(response.iter_lines()):
                        after_id, retries.failures = event.id if event else after_id, 0
                        yield event
                        _check_time(deadline_sec)
                # Streams also end without an error when the coordinator shuts down.
                if is_over():
                    return
                failure = Unavailable(f"{self.url} ended its events before their last")
            except Unavailable as error:
                failure = error
            _check_time(deadline_sec)
            if self.is_closed:
                raise failure
            retries.pause_after(failure)

    def _json(self, method: str, path: str, **kwargs: Any) -> Any:
        retries = Retries(RETRIES if method == "GET" else 0)
        while True:
            with self._explained():
                response = self._http.request(method, API + path, **kwargs)
            if not response.is_error:
                break
            error = error_from(response)
            if not isinstance(error, errors.TooMany):
                raise error
            retries.pause_after(error)
        if response.status_code == httpx.codes.NO_CONTENT:
            return None
        try:
            return response.json()
        except ValueError:
            message = f"{self.url} does not answer like a Mallorn coordinator"
            raise Unavailable(message, hint="check --url or MALLORN_URL") from None

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except httpx.ConnectError:
            message = f"no coordinator answers at {self.url}"
            raise Unavailable(message, hint="mallorn up   (or set --url / MALLORN_URL)") from None
        except (httpx.InvalidURL, httpx.UnsupportedProtocol) as error:
            raise errors.InvalidRequest(
                f"{self.url!r} is not a URL: {error}", hint="--url http://127.0.0.1:8000"
            ) from None
        except RuntimeError as error:
            if not self.is_closed:
                raise
            raise Unavailable(
                f"this connection to {self.url} is closed",
                hint="mallorn up   (in Python: mallorn.Client().job(ID))",
            ) from error
        except httpx.TransportError as error:
            message = f"the connection to {self.url} broke: {str(error) or type(error).__name__}"
            raise AnswerLost(message, hint=f"curl {self.url}/readyz") from None


def sha256_of(file: Path) -> str:
    with file.open("rb") as content:
        return file_digest(content, "sha256").hexdigest()


def error_from(response: httpx.Response) -> MallornError:
    """Convert an error response to an exception of the class that it names."""
    is_answer_lost = response.status_code in (502, 504)
    fallback = AnswerLost if is_answer_lost else _BY_STATUS.get(response.status_code, MallornError)
    try:
        body = response.json()
    except ValueError:
        body = None
    if not isinstance(body, dict) or "detail" not in body:
        hint = PROXY_LIMIT if fallback is errors.TooLarge else ""
        return fallback(f"HTTP {response.status_code} from {response.url}", hint=hint)
    kind = _BY_NAME.get(str(body.get("error")), fallback)
    message, request_id = str(body["detail"]), str(body.get("request_id") or "")
    # An operator finds the details of such an error in the coordinator's log.
    if request_id and response.status_code >= httpx.codes.INTERNAL_SERVER_ERROR:
        message = f"{message} (request {request_id})"
    error = kind(message, hint=str(body.get("hint") or ""))
    error.request_id = request_id
    delay = response.headers.get("Retry-After", "")
    if isinstance(error, errors.TooMany) and delay.isdecimal():
        error.retry_sec = int(delay)
    return error


def _check_time(deadline_sec: float) -> None:
    if time.monotonic() > deadline_sec:
        raise TimeoutError


def parse_events(lines: Iterable[str]) -> Iterator[LoggedEvent | None]:
    """Parse server-sent events; yield each complete one, and None for each heartbeat."""
    fields: dict[str, str] = {}
    for line in lines:
        if line.startswith(":"):
            yield None
            continue
        if line:
            name, _, value = line.partition(":")
            fields[name] = value.removeprefix(" ")
        elif "data" in fields:
            payload = json.loads(fields["data"])
            payload.pop("kind", None)  # it repeats the name of the event
            yield LoggedEvent(int(fields["id"]), fields.get("event", "message"), payload)
            fields = {}
