"""The Python client of a coordinator."""

import json
import time
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, Self, Unpack
from urllib.parse import quote
from uuid import uuid4

import httpx

from mallorn.core.address_checks import check_yours
from mallorn.core.api_keys import OwnerDeed
from mallorn.core.check_option_kwargs import OptionKwargs
from mallorn.core.errors import Unavailable
from mallorn.core.settings import DEFAULT_URL, settings
from mallorn.core.targets import LOCAL, TargetAttrs
from mallorn.core.values.access_control import ApiKey, AuditEntry, NewApiKey, OwnerStatus
from mallorn.core.values.cost_model_version import CostModelVersion
from mallorn.core.values.dataset import DatasetStats, Record, UploadedModel, VerifiedSchedule
from mallorn.core.values.fleet import DeviceStatus, Withdrawn, WorkerStatus
from mallorn.dataframes import frame
from mallorn.http import Connection, Json
from mallorn.job import Job
from mallorn.model_upload import ModelUpload, Progress, UploadStream
from mallorn.onnx_export import as_onnx
from mallorn.wording.format_values import short_name

if TYPE_CHECKING:
    import pandas

SUBMIT_RETRIES: Final = 2
RETRY_SEC: Final = 0.5
LONG_SEC: Final = 1800.0  # what goes through all that a device ever measured
Model = Any  # a path, or a torch.nn.Module
Wanted = str | TargetAttrs


class Client:
    """Talks to one coordinator: `Client().tune("model.onnx", target="local", trials=200).wait()`.

    Without a URL it takes MALLORN_URL, else the embedded stack's address, and raises NotYours where another
    user listens there; without a key MALLORN_API_KEY.
    """

    def __init__(
        self, url: str | None = None, api_key: str | None = None, transport: httpx.BaseTransport | None = None
    ) -> None:
        known = settings()
        if api_key is None and known.api_key is not None:
            api_key = known.api_key.get_secret_value()
        self.connection = Connection(url or known.url or check_yours(DEFAULT_URL), api_key, transport)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self.connection.close()

    def upload(
        self,
        model: Model,
        progress: Progress | None = None,
        example_inputs: Any = None,
        dynamic_shapes: Any = None,
    ) -> UploadedModel:
        """Stream a model up; the answer's `id` is the SHA-256 of its bytes.

        An ONNX file goes as it is, one with weights in files beside it as a tar, streamed from the disk; what
        else `tune` takes is made ONNX here first.
        """
        with as_onnx(model, example_inputs, dynamic_shapes) as file:
            parcel = ModelUpload.of(file)
            sent = UploadStream(parcel.chunks(), parcel.size_bytes, progress)
            answer = sent.put(self.connection, short_name(file.name))
        return self.connection.read(UploadedModel, answer)

    def tune(
        self,
        model: Model,
        target: Wanted = LOCAL,
        trials: int | None = None,
        minutes: float | None = None,
        seed: int = 0,
        name: str | None = None,
        priority: int = 0,
        progress: Progress | None = None,
        example_inputs: Any = None,
        dynamic_shapes: Any = None,
        **options: Unpack[OptionKwargs],
    ) -> Job:
        """Upload a model file, or name an uploaded model by its id, and submit a job for it.

        Without `trials` it gets as many as are worth their seconds, or as fit into `minutes` where those are
        given. Also takes a `torch.nn.Module` with example inputs (and `dynamic_shapes`, as torch.export takes
        them, where the option `dynamic` gives ranges), a Keras file or a TFLite file, which are made ONNX on
        this machine.
        """
        known = isinstance(model, str) and is_model_id(model)
        body = {
            "model_id": model if known else self.upload(model, progress, example_inputs, dynamic_shapes).id,
            "target": target,
            "trials": trials,
            "minutes": minutes,
            "seed": seed,
            "name": None if name is None else short_name(name),
            "priority": priority,
            "options": options,
        }
        return Job(self.connection, self._submit(body))

    def _submit(self, body: dict[str, object]) -> Json:
        """Post a job; where the answer got lost the key finds the job that the first try made."""
        headers = {"Idempotency-Key": uuid4().hex}
        for _ in range(SUBMIT_RETRIES):
            try:
                return dict(self.connection.post("/jobs", body, headers))
            except Unavailable:
                time.sleep(RETRY_SEC)
        return dict(self.connection.post("/jobs", body, headers))

    def job(self, job_id: str) -> Job:
        """A job by its id, or by as much of its beginning as no other job's has."""
        return Job(self.connection, self.connection.get(f"/jobs/{job_id}"))

    def jobs(
        self, state: str | None = None, archived: bool = False, all_owners: bool = False
    ) -> Iterator[Job]:
        """All jobs but the archived ones, or those alone, newest first; an admin may ask for everybody's."""
        # Left out where it says nothing: an older coordinator does not know it.
        wanted = {"state": state, "archived": archived or None, "all_owners": all_owners or None}
        return (Job(self.connection, body) for body in self.connection.rows("/jobs", **wanted))

    def newest_job(self) -> Job | None:
        """The job that was submitted last; None before the first."""
        items = self.connection.get("/jobs", limit=1)["items"]
        return Job(self.connection, items[0]) if items else None

    def models(self) -> Iterator[UploadedModel]:
        return self.connection.pages(UploadedModel, "/models")

    def delete_model(self, model_id: str) -> None:
        """Delete an uploaded model. Raises Conflict, naming them, while jobs refer to it."""
        self.connection.delete(f"/models/{model_id}")

    def records(
        self,
        job: str | None = None,
        workload: str | None = None,
        target: Wanted | None = None,
        outcome: str | None = None,
        page_size: int = 200,
    ) -> Iterator[Record]:
        """Measurements of the dataset, newest first, fetched page by page as they are asked for."""
        wanted = {"job": job, "workload": workload, "target": _text(target), "outcome": outcome}
        return self.connection.pages(Record, "/records", **wanted, limit=page_size)

    def records_frame(
        self,
        limit: int | None = None,
        job: str | None = None,
        workload: str | None = None,
        target: Wanted | None = None,
        outcome: str | None = None,
    ) -> "pandas.DataFrame":
        """What `records` finds (at most so many) as a DataFrame. Raises MissingPackage without pandas."""
        return frame(Record, islice(self.records(job, workload, target, outcome), limit))

    def dataset_stats(self) -> DatasetStats:
        """What your jobs measured, counted by target, operator, model, outcome and day."""
        return self.connection.value(DatasetStats, "/dataset/stats")

    def schedules(
        self, workload: str | None = None, target: Wanted | None = None, beaten: bool = False
    ) -> Iterator[VerifiedSchedule]:
        """The best known schedule of each workload and target, by name; with `beaten` slower ones, too."""
        wanted = {"workload": workload, "target": _text(target), "beaten": beaten or None}
        return self.connection.pages(VerifiedSchedule, "/schedules", **wanted)

    def cost_models(
        self,
        family: str | None = None,
        target: Wanted | None = None,
        name: str | None = None,
        version: int | None = None,
        active: bool | None = None,
    ) -> Iterator[CostModelVersion]:
        """The versions of trained cost models, newest first; `active` ones are what new rounds use."""
        wanted = {"family": family, "target": _text(target), "name": name, "version": version}
        return self.connection.pages(CostModelVersion, "/costmodels", **wanted, active=active)

    def cost_model(self, version_id: int) -> CostModelVersion:
        """One version of a cost model."""
        return self.connection.value(CostModelVersion, f"/costmodels/{version_id}")

    def activate_cost_model(self, version_id: int) -> CostModelVersion:
        """Let new rounds use this version, and training go on from it; later versions are kept."""
        answer = self.connection.post(f"/costmodels/{version_id}/activate")
        return self.connection.read(CostModelVersion, answer)

    def withdraw_device(self, name: str, since: float | None = None, *, dry_run: bool = False) -> Withdrawn:
        """Take back what a device measured since then, or ever, and what rests on it; or only count it."""
        wanted = {"since": since, "dry_run": dry_run}
        path = f"/devices/{quote(name, safe='')}/withdraw"
        answer = self.connection.post(path, wanted, read_sec=LONG_SEC)
        return self.connection.read(Withdrawn, answer)

    def api_keys(self) -> list[ApiKey]:
        """Your API keys, newest first; with an admin's key everybody's."""
        return self.connection.values(ApiKey, "/keys")

    def create_key(
        self, name: str, owner: str | None = None, scopes: Sequence[str] = (), days: float | None = None
    ) -> NewApiKey:
        """Make an API key. It can be read in the answer, and never again."""
        body = {"name": name, "owner": owner, "days": days} | ({"scopes": list(scopes)} if scopes else {})
        return self.connection.read(NewApiKey, self.connection.post("/keys", body))

    def rotate_key(self, key_id: str, grace_minutes: float = 0.0) -> NewApiKey:
        """Another secret for a key; the old one is let in for so many minutes."""
        path = f"/keys/{key_id}/rotate" + (f"?grace_minutes={grace_minutes:g}" if grace_minutes else "")
        return self.connection.read(NewApiKey, self.connection.post(path))

    def revoke_key(self, key_id: str) -> None:
        """Let a key open nothing from now on."""
        self.connection.delete(f"/keys/{key_id}")

    def owners(self) -> list[OwnerStatus]:
        """All owners, and who was put out: for admins."""
        return self.connection.values(OwnerStatus, "/owners")

    def treat_owner(self, owner: str, deed: OwnerDeed) -> OwnerStatus:
        """Sign an owner out, put them out, let them in again or erase them: for admins."""
        return self.connection.read(OwnerStatus, self.connection.post(f"/owners/{deed}", {"owner": owner}))

    def audit(self, page_size: int = 50) -> Iterator[AuditEntry]:
        """Who did what, newest first: your own; with an admin's key everybody's."""
        return self.connection.pages(AuditEntry, "/audit", limit=page_size)

    def devices(self) -> list[DeviceStatus]:
        """The devices that measure."""
        return self.connection.values(DeviceStatus, "/devices")

    def workers(self) -> list[WorkerStatus]:
        """The workers that search, build and drive devices."""
        return self.connection.values(WorkerStatus, "/workers")


def is_model_id(text: str) -> bool:
    """Whether a text reads as a SHA-256 in hex rather than as a path."""
    return len(text) == 64 and all(c in "0123456789abcdef" for c in text)


def _text(target: Wanted | None) -> str | None:
    return target if target is None or isinstance(target, str) else json.dumps(target)
