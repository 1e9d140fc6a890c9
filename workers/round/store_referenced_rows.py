"""Store the rows that new results refer to: sketches, measuring contexts and devices."""

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Final

from sqlalchemy.orm import Session

from mallorn.core.errors import ClassRefused
from mallorn.core.job_options import JobOptions
from mallorn.core.registry import VIRTUAL_DEVICES
from mallorn.core.targets import Target
from mallorn.db.repositories.devices import Devices, SeenDevice
from mallorn.db.repositories.measuring_contexts import Contexts
from mallorn.db.repositories.workloads import NewSketch, Sketches
from mallorn.db.tables import Context
from mallorn.searchers.space import Sketch
from mallorn.workers.device.device_class import Endpoint
from mallorn.workers.host.code_digest import TVM_VERSION
from mallorn.workers.measure.measurer_interface import DECLARE, UNDECLARED
from mallorn.workers.process.heartbeat import ENOUGH_SEC
from mallorn.workers.process.match_devices_and_builder import builder_of

SPACE: Final = "post-order-apply/1"  # name and version: another version's sketches may not rebuild


@dataclass(frozen=True, slots=True)
class Site:
    """The measuring context and device of a result; None if it reached no device."""

    context_id: int | None
    device_id: int | None


NOWHERE: Final = Site(None, None)


def get_or_create_context(
    session: Session, target_id: int, target: Target, options: JobOptions, endpoint: Endpoint
) -> Context:
    """Return the measuring context of times at an endpoint, created if new; times of
    different contexts are not comparable. Raises ClassRefused for a measurer with an
    undeclared virtual device."""
    # Times of a virtual device must not be stored with real ones, not even if it is undeclared.
    if endpoint.host_id in VIRTUAL_DEVICES and endpoint.host_id != target.virtual_device:
        raise ClassRefused(UNDECLARED, hint=DECLARE)
    return Contexts(session).ensure(
        target_id,
        endpoint.host_class,
        endpoint.tvm_version,
        endpoint.threads,
        options.timing(target),
        builder_of(options, target),
    )


def store_sites(
    session: Session,
    target_id: int,
    target: Target,
    options: JobOptions,
    endpoints: Sequence[Endpoint | None],
) -> list[Site]:
    """Return each endpoint's measuring context and device (NOWHERE for None), stored if
    new. Raises ClassRefused for a measurer with an undeclared virtual device."""
    by_name = {endpoint.name: endpoint for endpoint in endpoints if endpoint is not None}
    # All writers use the same order, to avoid deadlocks.
    contexts = {
        name: get_or_create_context(session, target_id, target, options, by_name[name]).id
        for name in sorted(by_name)
    }
    seen = [SeenDevice(target_id=target_id, **asdict(endpoint)) for endpoint in by_name.values()]
    ids = Devices(session).record_all_seen(seen, ENOUGH_SEC, ENOUGH_SEC)
    return [NOWHERE if each is None else Site(contexts[each.name], ids[each.name]) for each in endpoints]


def store_sketches(session: Session, sketches: Iterable[Sketch], imported: bool = False) -> dict[str, int]:
    distinct = {sketch.key: NewSketch(sketch, SPACE, TVM_VERSION) for sketch in sketches}
    return Sketches(session).ensure_many(distinct.values(), imported=imported)
