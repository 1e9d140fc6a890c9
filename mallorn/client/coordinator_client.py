"""Python client of a coordinator, the service's REST server."""

import json
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self, Unpack
from urllib.parse import quote

import httpx

from mallorn.client.dataframes import frame
from mallorn.client.http_connection import Connection
from mallorn.client.job import Job
from mallorn.client.logins import current_url, key_of
from mallorn.client.model_upload import ModelUpload, Progress, Uploader, find_free_inputs
from mallorn.client.onnx_export import as_onnx
from mallorn.core.address_checks import check_own_service
from mallorn.core.api_keys import OwnerAction
from mallorn.core.check_option_kwargs import OptionKwargs, free_dimensions_error
from mallorn.core.errors import InvalidRequest
from mallorn.core.settings import DEFAULT_URL, settings
from mallorn.core.target_kind import TargetAttrs
from mallorn.core.targets import LOCAL
from mallorn.core.values.access_control import ApiKey, AuditEntry, NewApiKey, OwnerStatus
from mallorn.core.values.cost_model_version import CostModelVersion
from mallorn.core.values.dataset import DatasetStats, Record, ScheduleLookup, UploadedModel, VerifiedSchedule
from mallorn.core.values.fleet import DeviceStatus, Withdrawn, WorkerStatus
from mallorn.wording.format_values import short_name

if TYPE_CHECKING:
    import pandas

LONG_SEC: Final = 1800.0  # for a request that goes through all measurements of a device
Model = Any  # a path, or a torch.nn.Module
Wanted = str | TargetAttrs


class Client:
    """Client of one coordinator: `Client().submit("model.onnx", trials=200).wait()`.

    The URL defaults to MALLORN_URL, else to the service of `mallorn login`, else to the
    address of `mallorn up`; the key to MALLORN_API_KEY, else to the one kept for that URL.
    Raises NotYours if another user of this machine listens at the address of `mallorn up`.
    """

    def __init__(
        self, url: str | None = None, api_key: str | None = None, transport: httpx.BaseTransport | None = None
    ) -> None:
        config = settings()
        if api_key is None and config.api_key is not None:
            api_key = config.api_key.get_secret_value()
        url = url or config.url or current_url() or check_own_service(DEFAULT_URL)
        self.connection = Connection(url, key_of(url) if api_key is None else api_key, transport)

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
        inputs: str | Path | None = None,
    ) -> UploadedModel:
        """Upload a model; the `id` of the result is the SHA-256 of the uploaded bytes.

        `inputs` is an npz file of arrays by input name, with which jobs check the tuned
        model; several draws have keys such as `0/NAME` and `1/NAME`.

        Nothing is sent if the coordinator has these bytes of yours. An upload of a large
        model that broke is resumed by the same call.
        An ONNX file is streamed from disk as it is, or in a tar if its weights are in other
        files. Any other model that `tune` accepts is first converted to ONNX here.
        """
        with as_onnx(model, example_inputs, dynamic_shapes) as file:
            uploader = Uploader(
                self.connection, ModelUpload.of(file, Path(inputs) if inputs else None), progress
            )
            answer = uploader.upload(short_name(file.name))
        return self.connection.parse_as(UploadedModel, answer)

    def submit(
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
        labels: Mapping[str, str] | None = None,
        inputs: str | Path | None = None,
        **options: Unpack[OptionKwargs],
    ) -> Job:
        """Submit a tuning job for a model: a model's id, or a model to upload first. Return it at once.

        Without `trials` the job runs as many trials as are worth their time, or as fit into
        `minutes`. A Keras file, a TFLite file or a `torch.nn.Module` is converted to ONNX
        on this machine. A module needs `example_inputs`, and also `dynamic_shapes`, as
        torch.export takes them, if the option `dynamic` gives ranges. `labels` are values
        by key, empty for a label without a value. `inputs` are those of `upload`.
        """
        model_id = model
        if not (isinstance(model, str) and is_model_id(model)):
            with as_onnx(model, example_inputs, dynamic_shapes) as file:
                if free := find_free_inputs(file, options):
                    raise free_dimensions_error(free, options.get("input_shapes"))
                model_id = self.upload(file, progress, inputs=inputs).id
        elif inputs is not None:
            raise InvalidRequest("inputs for checks are uploaded with a model's file", hint="give the file")
        body = {
            "model_id": model_id,
            "target": target,
            "trials": trials,
            "minutes": minutes,
            "seed": seed,
            "name": None if name is None else short_name(name),
            "priority": priority,
            "options": options,
            "labels": dict(labels or {}),
        }
        return Job(self.connection, self.connection.post("/jobs", body, is_repeatable=True))

    def job(self, job_id: str) -> Job:
        """Return the job whose id is, or begins with, `job_id`, if only one id does."""
        return Job(self.connection, self.connection.get(f"/jobs/{job_id}"))

    def jobs(
        self,
        state: str | Sequence[str] | None = None,
        archived: bool = False,
        all_owners: bool = False,
        *,
        owner: str | None = None,
        name: str | None = None,
        labels: Sequence[str] = (),
        model: str | None = None,
        created_after: float | None = None,
        created_before: float | None = None,
    ) -> Iterator[Job]:
        """Iterate over jobs, newest first: archived ones if `archived`, else the others.

        Only jobs with all `labels` (`key` or `key=value`), with `name` in the name, of the
        model whose id begins with `model`, and in one of the states if several are given.
        Times are in seconds since the epoch. `owner` and `all_owners` need an admin's key.
        """
        filters: dict[str, object] = {"state": state, "archived": archived, "all_owners": all_owners}
        filters |= {"owner": owner, "name": name, "label": list(labels) or None, "model": model}
        filters |= {"created_after": created_after, "created_before": created_before}
        return (Job(self.connection, body) for body in self.connection.iterate_json("/jobs", **filters))

    def newest_job(self) -> Job | None:
        """Return the most recently submitted job; None if there is none."""
        items = self.connection.get("/jobs", limit=1)["items"]
        return Job(self.connection, items[0]) if items else None

    def models(self) -> Iterator[UploadedModel]:
        return self.connection.iterate_values(UploadedModel, "/models")

    def delete_model(self, model_id: str) -> None:
        """Delete an uploaded model. Raises Conflict if jobs refer to it, and names them."""
        self.connection.delete(f"/models/{model_id}")

    def records(
        self,
        job: str | None = None,
        workload: str | None = None,
        target: Wanted | None = None,
        outcome: str | None = None,
        page_size: int = 200,
    ) -> Iterator[Record]:
        """Iterate over matching measurements, newest first, in pages of `page_size`."""
        filters = {"job": job, "workload": workload, "target": _text(target), "outcome": outcome}
        return self.connection.iterate_values(Record, "/records", **filters, limit=page_size)

    def records_frame(
        self,
        limit: int | None = None,
        job: str | None = None,
        workload: str | None = None,
        target: Wanted | None = None,
        outcome: str | None = None,
    ) -> "pandas.DataFrame":
        """Return the newest `limit` measurements as a DataFrame; this needs pandas."""
        return frame(Record, islice(self.records(job, workload, target, outcome), limit))

    def dataset_stats(self) -> DatasetStats:
        """Return counts of your measurements by target, operator, model, outcome and day."""
        return self.connection.value(DatasetStats, "/dataset/stats")

    def schedules(
        self, workload: str | None = None, target: Wanted | None = None, beaten: bool = False
    ) -> Iterator[VerifiedSchedule]:
        """Iterate over the best schedule per workload and target; if `beaten`, over all."""
        filters = {"workload": workload, "target": _text(target), "beaten": beaten or None}
        return self.connection.iterate_values(VerifiedSchedule, "/schedules", **filters)

    def find_schedules(
        self,
        operator: str | None = None,
        shape: Sequence[str] = (),
        dtype: str | None = None,
        target: Wanted | None = None,
        workload: str | None = None,
    ) -> ScheduleLookup:
        """Return schedules that fit or, if there is none, the nearest and their differences.

        `shape` lists shapes of arguments, such as `1x64x56x56`.
        """
        filters = {"operator": operator, "shape": shape, "dtype": dtype, "target": _text(target)}
        return self.connection.value(ScheduleLookup, "/schedules/lookup", **filters, workload=workload)

    def cost_models(
        self,
        family: str | None = None,
        target: Wanted | None = None,
        name: str | None = None,
        version: int | None = None,
        active: bool | None = None,
    ) -> Iterator[CostModelVersion]:
        """Iterate over cost-model versions, newest first; `active` ones serve new rounds."""
        filters = {"family": family, "target": _text(target), "name": name, "version": version}
        return self.connection.iterate_values(CostModelVersion, "/costmodels", **filters, active=active)

    def cost_model(self, version_id: int) -> CostModelVersion:
        """Return the cost-model version with this id."""
        return self.connection.value(CostModelVersion, f"/costmodels/{version_id}")

    def activate_cost_model(self, version_id: int) -> CostModelVersion:
        """Make this version the one that new rounds use and that training continues."""
        answer = self.connection.post(f"/costmodels/{version_id}/activate")
        return self.connection.parse_as(CostModelVersion, answer)

    def withdraw_device(self, name: str, since: float | None = None, *, dry_run: bool = False) -> Withdrawn:
        """Withdraw a device's measurements, and schedules and cost models based on them.

        `since` is in seconds since the epoch; None withdraws all. `dry_run` only counts.
        """
        body = {"since": since, "dry_run": dry_run}
        path = f"/devices/{quote(name, safe='')}/withdraw"
        answer = self.connection.post(path, body, read_sec=LONG_SEC)
        return self.connection.parse_as(Withdrawn, answer)

    def api_keys(self) -> list[ApiKey]:
        """Return your API keys, newest first; with an admin's key, those of all owners."""
        return self.connection.values(ApiKey, "/keys")

    def create_key(
        self, name: str, owner: str | None = None, scopes: Sequence[str] = (), days: float | None = None
    ) -> NewApiKey:
        """Create an API key; only this result contains the key itself.

        It is for you unless `owner` is given, has the scopes read and submit unless
        `scopes` are given, and expires after `days`, or never if that is None.
        """
        body = {"name": name, "owner": owner, "days": days} | ({"scopes": list(scopes)} if scopes else {})
        return self.connection.parse_as(NewApiKey, self.connection.post("/keys", body))

    def rotate_key(self, key_id: str, grace_minutes: float = 0.0) -> NewApiKey:
        """Replace the secret of a key; the old secret stays valid for `grace_minutes`."""
        path = f"/keys/{key_id}/rotate" + (f"?grace_minutes={grace_minutes:g}" if grace_minutes else "")
        return self.connection.parse_as(NewApiKey, self.connection.post(path))

    def revoke_key(self, key_id: str) -> None:
        """Revoke an API key, so that the service refuses it from now on."""
        self.connection.delete(f"/keys/{key_id}")

    def owners(self) -> list[OwnerStatus]:
        """Return all owners and when they were banned. Needs an admin's key."""
        return self.connection.values(OwnerStatus, "/owners")

    def change_owner_access(self, owner: str, action: OwnerAction) -> OwnerStatus:
        """Sign out, ban, readmit or erase an owner, as `action` says. Needs an admin's key."""
        return self.connection.parse_as(
            OwnerStatus, self.connection.post(f"/owners/{action}", {"owner": owner})
        )

    def audit(self, page_size: int = 50) -> Iterator[AuditEntry]:
        """Iterate over entries of the audit log, newest first; an admin's key reads all."""
        return self.connection.iterate_values(AuditEntry, "/audit", limit=page_size)

    def devices(self, target: Wanted | None = None) -> list[DeviceStatus]:
        """Return the coordinator's devices: all, or those of a target such as `local`."""
        return self.connection.values(DeviceStatus, "/devices", target=_text(target))

    def workers(self) -> list[WorkerStatus]:
        """Return all workers that the coordinator knows."""
        return self.connection.values(WorkerStatus, "/workers")


def is_model_id(text: str) -> bool:
    """Return whether a text is a model's id (a SHA-256 in hex) rather than a path."""
    return len(text) == 64 and all(c in "0123456789abcdef" for c in text)


def _text(target: Wanted | None) -> str | None:
    return target if target is None or isinstance(target, str) else json.dumps(target)
