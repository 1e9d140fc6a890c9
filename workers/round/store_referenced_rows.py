"""Store the rows that new results refer to: sketches, measuring contexts and devices."""

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Final

from sqlalchemy.orm import Session

from mallorn.core.errors import ClassRefused
from mallorn.core.job_options import JobOptions
from mallorn.core.registry import VIRTUAL_DEVICES
from mallorn.core.targets import Target
from mallorn.db.repositories.devices import Devices, SeenDevice
from mallorn.db.repositories.measuring_contexts import Contexts
from mallorn.db.repositories.targets import Targets
from mallorn.db.repositories.workloads import NewSketch, Sketches
from mallorn.db.tables import Context
from mallorn.searchers.space import Sketch
from mallorn.workers.device.device_class import DeviceClass, Endpoint
from mallorn.workers.host.code_digest import TVM_VERSION
from mallorn.workers.measure.measurer_interface import DECLARE, UNDECLARED
from mallorn.workers.process.match_devices_and_builder import builder_of

SPACE: Final = "post-order-apply/1"  # name and version: another version's sketches may not rebuild


@dataclass(frozen=True, slots=True)
class Site:
    """The measuring context and device of a result; None if it reached no device."""

    context_id: int | None
    device_id: int | None


NOWHERE: Final = Site(None, None)


def get_or_create_context(
    session: Session, target_id: int, options: JobOptions, endpoint: Endpoint
) -> Context:
    """Return the measuring context of times at an endpoint, created if new; times of
    different contexts are not comparable. Raises ClassRefused for a measurer with an
    undeclared virtual device."""
    # Times of a virtual device must not be stored with real ones, not even if it is undeclared.
    if endpoint.host_id in VIRTUAL_DEVICES:
        target = Target(Targets(session).get(target_id).text)
        if endpoint.host_id != target.virtual_device:
            raise ClassRefused(UNDECLARED, hint=DECLARE)
    return Contexts(session).ensure(
        target_id,
        endpoint.host_class,
        endpoint.tvm_version,
        endpoint.threads,
        options.timing(),
        builder_of(options, target),
    )


@dataclass(slots=True)
class StoredRows:
    """The stored rows that results of one round refer to; each is looked up once."""

    target_id: int
    options: JobOptions
    _sketch_ids: dict[str, int] = field(default_factory=dict)
    _sites: dict[tuple[str, DeviceClass], Site] = field(default_factory=dict)

    def copy(self) -> "StoredRows":
        return replace(self, _sketch_ids={**self._sketch_ids}, _sites={**self._sites})

    def sketches(self, session: Session, sketches: Iterable[Sketch]) -> Mapping[str, int]:
        """Return the ids of sketches by key, stored if new."""
        new = [sketch for sketch in sketches if sketch.key not in self._sketch_ids]
        if new:
            self._sketch_ids |= store_sketches(session, new)
        return self._sketch_ids

    def sites(self, session: Session, endpoints: Iterable[Endpoint | None]) -> list[Site]:
        """Return each endpoint's site, as `store_sites` does."""
        endpoints = list(endpoints)
        new = {_key(each): each for each in endpoints if each is not None and _key(each) not in self._sites}
        if new:
            sites = store_sites(session, self.target_id, self.options, new.values())
            self._sites |= zip(new, sites, strict=True)
        return [NOWHERE if each is None else self._sites[_key(each)] for each in endpoints]


def _key(endpoint: Endpoint) -> tuple[str, DeviceClass]:
    return endpoint.name, endpoint.device_class


def store_sites(
    session: Session, target_id: int, options: JobOptions, endpoints: Iterable[Endpoint | None]
) -> list[Site]:
    """Return each endpoint's measuring context and device (NOWHERE for None), stored if
    new. Raises ClassRefused for a measurer with an undeclared virtual device."""
    endpoints = list(endpoints)
    by_name = {endpoint.name: endpoint for endpoint in endpoints if endpoint is not None}
    sites: dict[str, Site] = {}
    # All writers use the same order, to avoid deadlocks.
    for name in sorted(by_name):
        context = get_or_create_context(session, target_id, options, by_name[name])
        device = SeenDevice(target_id=target_id, **asdict(by_name[name]))
        sites[name] = Site(context.id, Devices(session).record_seen(device))
    return [NOWHERE if endpoint is None else sites[endpoint.name] for endpoint in endpoints]


def store_sketches(session: Session, sketches: Iterable[Sketch], imported: bool = False) -> dict[str, int]:
    distinct = {sketch.key: NewSketch(sketch, SPACE, TVM_VERSION) for sketch in sketches}
    return Sketches(session).ensure_many(distinct.values(), imported=imported)
