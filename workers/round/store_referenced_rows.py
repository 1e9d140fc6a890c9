"""The rows that fresh results point to: their sketches, contexts and devices."""

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Final

from sqlalchemy.orm import Session

from db.repositories.devices import Devices, SeenDevice
from db.repositories.measuring_contexts import Contexts
from db.repositories.sketches import NewSketch, Sketches
from db.repositories.targets import Targets
from db.tables import Context
from mallorn.core.errors import ClassRefused
from mallorn.core.job_options import JobOptions
from mallorn.core.stand_in_measurers import SAY_SO, STAND_INS, UNSAID, stand_in
from mallorn.core.targets import Target
from searchers.space import Sketch
from workers.device.device_class import Endpoint
from workers.process.match_devices_and_builder import builder_of
from workers.tvm.code_digest import TVM_VERSION

SPACE: Final = "post-order-apply/1"  # name and version: another version's sketches may not rebuild


@dataclass(frozen=True, slots=True)
class Site:
    """Where and in which context something was measured; both None for what never reached a device."""

    context_id: int | None
    device_id: int | None


NOWHERE: Final = Site(None, None)


def context_of(session: Session, target_id: int, options: JobOptions, endpoint: Endpoint) -> Context:
    """What is timed at an endpoint compares within it. Raises ClassRefused for a device that is none."""
    target = Target(Targets(session).get(target_id).text)
    # No made-up time is stored with real ones: not of a measurer that does not say what it is, either.
    if endpoint.host_id in STAND_INS and endpoint.host_id != stand_in(target):
        raise ClassRefused(UNSAID, hint=SAY_SO)
    host = endpoint.host_class, endpoint.tvm_version, endpoint.threads
    return Contexts(session).ensure(target_id, *host, options.timing(), builder_of(options))


def store_sites(
    session: Session, target_id: int, options: JobOptions, endpoints: Iterable[Endpoint | None]
) -> list[Site]:
    """Return the site of each endpoint, NOWHERE where there is none, and store its rows if they are new.

    Raises ClassRefused for a stand-in that does not say that it is one.
    """
    endpoints = list(endpoints)
    met = {endpoint.name: endpoint for endpoint in endpoints if endpoint is not None}
    sites: dict[str, Site] = {}
    # In one order for all who write several devices, so that two never wait for each other.
    for name in sorted(met):
        context = context_of(session, target_id, options, met[name])
        device = SeenDevice(target_id=target_id, **asdict(met[name]))
        sites[name] = Site(context.id, Devices(session).seen(device))
    return [NOWHERE if endpoint is None else sites[endpoint.name] for endpoint in endpoints]


def store_sketches(session: Session, sketches: Iterable[Sketch], imported: bool = False) -> dict[str, int]:
    """Ids of sketches by key, new ones written."""
    distinct = {sketch.key: NewSketch(sketch, SPACE, TVM_VERSION) for sketch in sketches}
    return Sketches(session).ensure_many(distinct.values(), imported=imported)
