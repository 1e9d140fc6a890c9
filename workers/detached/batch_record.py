"""Store the record of a batch, and validate the results that an untrusted machine sends."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from string import hexdigits
from typing import Annotated, Final, Literal

from pydantic import Field, JsonValue, ValidationError

from mallorn.core.artifact_uris import batch_uri, open_artifact
from mallorn.core.errors import InvalidRequest
from mallorn.core.storable_json import quote_untrusted as printable
from mallorn.core.storable_json import read_json
from mallorn.core.values.base import Value
from mallorn.core.values.disturbance import Disturbance
from mallorn.searchers.base import Proposal
from mallorn.workers.detached.run_batch import FORMAT
from mallorn.workers.device.device_class import MOST_THREADS, Endpoint, endpoint_of

LEASE_SEC: Final = 60 * 24 * 3600.0  # of a batch's work: cluster queues are long
MOST_BYTES: Final = 64 * 1024**2
ID_DIGITS: Final = 16
LONGEST_US: Final = 1e10
ANOTHER: Final = "this service did not make the batch of these results, or it was dropped"
RESULTS: Final = "mallorn batch take FILE.results.jsonl   (as run_batch.py wrote it)"
AGAIN: Final = "mallorn batch next JOB -o FILE"
Seconds = Annotated[float, Field(ge=0, lt=LONGEST_US, allow_inf_nan=False)]
Microseconds = Annotated[float, Field(gt=0, lt=LONGEST_US, allow_inf_nan=False)]


class SentRound(Value):
    """A tuning round in a batch: its candidates, and what is needed to close it."""

    round_id: int
    proposals: tuple[Proposal, ...]
    build_ms: dict[int, float]  # by slot; only of candidates that could be built


class SentCall(Value):
    """A measurement for a job's last stage: a timing or a numeric check of a candidate."""

    key: str
    workload: str
    candidate: str


class SentBatch(Value):
    """The record of a batch's contents, which the service keeps until all results come."""

    id: str
    job_id: str
    digest: str = ""
    keys: tuple[str, ...] = ()  # of all its calls
    rounds: tuple[SentRound, ...] = ()
    passes: tuple[SentCall, ...] = ()
    checks: tuple[SentCall, ...] = ()


def lease_holder_name(batch_id: str) -> str:
    """Return the holder's name under which a batch leases rounds or a job's last stage."""
    return f"batch-{batch_id}"


class _ReportedDisturbance(Disturbance):
    candidates: Literal[1]
    upper_bounds: Annotated[int, Field(ge=0, le=1)]
    valid_sec: Seconds
    repeated_sec: Seconds
    other_programs: Annotated[float, Field(ge=0, lt=1e6, allow_inf_nan=False)]
    cores: Annotated[int, Field(ge=0, le=MOST_THREADS)]
    gpu: Annotated[str, Field(max_length=1000)]


class CallResult(Value):
    """The result of one timing or numeric check, as run_batch.py writes it."""

    key: Annotated[str, Field(max_length=64)]
    outcome: Literal["ok", "run_error", "run_timeout", "worker_lost", "wrong_result"]
    run_us: Annotated[tuple[Microseconds, ...], Field(max_length=1000)] = ()
    run_ms: Annotated[float, Field(ge=0, lt=LONGEST_US, allow_inf_nan=False)] = 0.0
    error: Annotated[str, Field(max_length=4000)] = ""
    max_error: Annotated[float | None, Field(ge=0, allow_inf_nan=False)] = None
    disturbed: Annotated[float | None, Field(ge=0, le=1)] = None
    disturbance: _ReportedDisturbance | None = None


class _Header(Value):
    format: int
    batch: Annotated[str, Field(max_length=ID_DIGITS)]
    digest: Annotated[str, Field(max_length=64)]
    device: dict[str, JsonValue]


@dataclass(frozen=True, slots=True)
class BatchResults:
    """The contents of a results file: the last device that measured, and results by key."""

    batch: str
    digest: str
    device: Endpoint
    calls: dict[str, CallResult]


def read_results(file: Path) -> BatchResults:
    """Read a results file; its last line may be incomplete. Raises InvalidRequest."""
    if not file.is_file():
        raise InvalidRequest(f"there is no file {str(file)!r}", hint=RESULTS)
    if file.stat().st_size > MOST_BYTES:
        raise InvalidRequest(f"{file} is larger than {MOST_BYTES >> 20} MiB, the limit", hint=RESULTS)
    text = file.read_bytes()
    headers: list[_Header] = []
    calls: dict[str, CallResult] = {}
    try:
        for line in text[: text.rfind(b"\n") + 1].splitlines():
            record = read_json(line)
            if "device" in record:
                headers.append(_Header.model_validate(record))
            elif "key" in record:
                result = CallResult.model_validate(record)
                calls.setdefault(result.key, result)
        devices = [endpoint_of(header.device) for header in headers]
    except (ValidationError, ValueError, TypeError) as error:
        words = printable(" ".join(str(error).split()))
        raise InvalidRequest(f"{file} does not hold results of a batch: {words}", hint=RESULTS) from None
    if not headers or headers[0].format != FORMAT:
        raise InvalidRequest(f"{file} does not hold results of a batch (of this version)", hint=RESULTS)
    marks = {(header.batch, header.digest) for header in headers}
    if len(marks) > 1 or len({device.device_class for device in devices}) > 1:
        raise InvalidRequest(f"{file} mixes batches, or device classes", hint=RESULTS)
    # A separate name, so that no file describes a registered device. Nobody can reach this device.
    info = devices[-1].info.model_copy(update={"stopped": True, "is_local": False, "address": ""})
    device = replace(devices[-1], name=f"batch:{devices[-1].name}", info=info)
    return BatchResults(headers[0].batch, headers[0].digest, device, calls)


def store_batch(artifacts: str, batch: SentBatch) -> None:
    """Store a batch's record until its results are taken. Raises StoreAway, StorageFull."""
    with open_artifact(batch_uri(artifacts, batch.job_id, batch.id)) as (store, path):
        store.makedirs(path.rpartition("/")[0], exist_ok=True)
        store.pipe_file(path, batch.model_dump_json().encode())


def load_batch(artifacts: str, batch_id: str) -> SentBatch:
    """Return a stored batch. Raises InvalidRequest if the service has none with this id."""
    if len(batch_id) != ID_DIGITS or not set(batch_id) <= set(hexdigits):
        raise InvalidRequest(ANOTHER, hint=AGAIN)
    with open_artifact(batch_uri(artifacts, "*", batch_id)) as (store, pattern):
        for path in store.glob(pattern):
            return SentBatch.model_validate_json(store.cat_file(path))
    raise InvalidRequest(ANOTHER, hint=AGAIN)


def delete_batch(artifacts: str, batch: SentBatch) -> None:
    with open_artifact(batch_uri(artifacts, batch.job_id, batch.id)) as (store, path):
        store.rm_file(path)


def check_call_keys(batch: SentBatch, results: BatchResults) -> Mapping[str, CallResult]:
    """Return the results by call key. Raises InvalidRequest for calls of another batch."""
    if results.digest != batch.digest:
        raise InvalidRequest(
            "these results are of a batch file that was changed after `mallorn batch next`", hint=AGAIN
        )
    if unknown_keys := sorted(results.calls.keys() - set(batch.keys)):
        raise InvalidRequest(f"the batch has no candidate {unknown_keys[0]}", hint=AGAIN)
    checks = {call.key for call in batch.checks}
    for key, result in results.calls.items():
        if bool(result.run_us) != (result.outcome == "ok" and key not in checks):
            raise InvalidRequest(f"{key}: a result must have run times if, and only if, the run succeeded")
    return results.calls
