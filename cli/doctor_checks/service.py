"""Checks that the coordinator, database, broker, workers, devices and tracker answer."""

from collections.abc import Sequence

from mallorn import Client
from mallorn.core.address_checks import host_and_port
from mallorn.core.errors import HostFault, Unavailable
from mallorn.core.fleet_key import FleetKey
from mallorn.core.host_id import SEPARATE_LOCKS, SHARE_LOCKS
from mallorn.core.values.fleet import AT_WORK, WorkerState, find_unshared_locks
from mallorn.stack.data_directory import StackInfo
from mallorn.stack.supervised_process import tracker_answers


def check_readiness(api: Client) -> str:
    """Raise Unavailable if coordinator, database, tables or broker fail; name which."""
    api.connection.get("/readyz")
    return f"{api.connection.url}: database, tables and broker are ready"


def check_control(api: Client) -> str:
    """Raise Unavailable if the control process does not run its periodic clean-up tasks."""
    state = api.connection.get("/readyz").get("control", "ok")
    if state != "ok":
        raise Unavailable(state, hint="mallorn control, or read its log")
    return "the periodic tasks sweep and reap run on time"


def check_workers(api: Client) -> str:
    """Return a text on the live workers. Raises Unavailable if none of them takes work."""
    rows = api.workers()
    alive = [row for row in rows if row.state in AT_WORK]
    silent = [row.id for row in rows if row.state is WorkerState.SILENT]
    problems = [(row.id, row.info.missing_resource or row.info.device_list_error) for row in alive]
    causes = [f"; {name}: {cause}" for name, cause in problems if cause]
    problem_text = "".join([_format_silent_names(silent), *causes])
    if not [row for row in alive if not row.info.missing_resource]:
        raise Unavailable(f"no worker is running{problem_text}", hint="mallorn worker, or read its log")
    return f"{len(alive)} are there{problem_text}"


def check_devices(api: Client) -> str:
    """Return a text on devices that answer or not. Raises Unavailable if none answers."""
    rows = api.devices()
    online = [f"{row.name} {row.info.gpu_words}".strip() for row in rows if row.online]
    silent_names = [row.name for row in rows if not row.online]
    if not online:
        message = f"no device answers{_format_silent_names(silent_names)}"
        raise Unavailable(message, hint="mallorn device, or read its log")
    return f"{', '.join(online)} answer{_format_silent_names(silent_names)}"


def check_build_locks(api: Client) -> str:
    """Raise HostFault if workers may build while devices of their host time candidates."""
    separate = find_unshared_locks(api.devices(), api.workers())
    if separate:
        raise HostFault(f"{SEPARATE_LOCKS}: {', '.join(separate)}", hint=SHARE_LOCKS)
    return "workers and devices of one host share a lock file"


def check_tracker(info: StackInfo, key: FleetKey) -> str:
    """Raise Unavailable if the tracker of the service here does not answer with `key`."""
    if not tracker_answers(host_and_port(info.tracker), key):
        raise Unavailable(f"the tracker at {info.tracker} does not answer", hint="read logs/tracker.log")
    return f"{info.tracker} answers"


def _format_silent_names(silent: Sequence[str]) -> str:
    return f"; silent: {', '.join(silent)}" if silent else ""
