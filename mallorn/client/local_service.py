"""Connect to a service at a URL, to the one on this machine, or to one started for it."""

import os
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from mallorn.client.coordinator_client import Client, Wanted
from mallorn.client.job import Job
from mallorn.client.progress_lines import print_line
from mallorn.core.errors import InvalidTarget, Unavailable
from mallorn.core.installation import python_path
from mallorn.core.settings import Settings
from mallorn.core.targets import LOCAL, Target, kind_of_word, parse_target
from mallorn.core.version import API
from mallorn.core.virtual_devices import add_virtual_device
from mallorn.stack.data_directory import LOCK_PATIENCE_SEC, DataDir, StackInfo
from mallorn.stack.process_specs import mallorn_command
from mallorn.stack.read_only_coordinator import DataDirTransport, add_data_option_to_hints
from mallorn.stack.supervised_process import http_answers

START_TIMEOUT_SEC: Final = 360.0  # longer than any part of a stack may take
STOP_TIMEOUT_SEC: Final = 90.0
POLL_SEC: Final = 0.05
LAST_LINES: Final = 12  # shown of the log of a service that ended


@dataclass(frozen=True)
class Connected:
    """A client of a running service, with its data directory if it is on this machine."""

    api: Client
    data: DataDir | None = None

    def check_runs(self) -> None:
        """Raise Unavailable, quoting the log, if the service on this machine has ended."""
        if self.data is None or self.data.is_locked():
            return
        lines = _log(self.data).read_text(errors="replace").splitlines() if _log(self.data).exists() else []
        words = "\n".join(lines[-LAST_LINES:])
        raise Unavailable(f"the service on this machine has ended\n{words}", hint=f"ls {self.data.logs}")

    def job_from_files(self, job: Job) -> Job:
        """Return a handle that can read the job even after a local service has ended."""
        if self.data is None:
            return job
        api = Client(self.api.connection.url, transport=DataDirTransport(self.data))
        return Job(api.connection, job.body)


@contextmanager
def connected_stack(url: str | None, api_key: str | None, data: Path | None = None) -> Iterator[Connected]:
    """Connect to `url`, else to the service on a data directory; start one if none runs.

    A service started here also serves other commands, and stops when the last of them ends.
    """
    if url:
        with Client(url, api_key) as api:
            yield Connected(api)
        return
    directory = DataDir((data.expanduser() if data else Settings().data_dir).absolute())
    directory.create_directories()
    starter = Starter(directory)
    info: StackInfo | None = None
    try:
        with directory.hold_user_lock(), add_data_option_to_hints(directory):
            info = starter.wait_until_ready()
            with Client(info.url, api_key) as api:
                yield Connected(api, directory)
    finally:
        if info is None or info.until_unused:
            starter.wait_until_ended()


def resolve_target_to_submit(stack: Connected, target: Wanted, measurer: str) -> Target:
    """Return a job's target; a `measurer` that is a virtual device becomes its device.

    A service resolves `local` only once a device is online. To avoid that wait, one on this
    machine gets the last target of this host's device, else the detected target.
    """
    return add_virtual_device(_resolve_target(stack, target), measurer)


def _resolve_target(stack: Connected, target: Wanted) -> Target:
    if not isinstance(target, str) or (target != LOCAL and kind_of_word(target) is None):
        return parse_target(target)
    devices = stack.api.devices() if target == LOCAL and stack.data else []
    if stack.data is None or target != LOCAL or any(device.online for device in devices):
        found = sorted({device.target for device in stack.api.devices(target)})
        if len(found) != 1:  # an older coordinator does not filter devices
            message = f"the service knows {len(found)} targets that `{target}` may mean"
            raise InvalidTarget(message, hint="mallorn devices   (then --target JSON)")
        return parse_target(found[0])
    from mallorn.workers.device.detect_host import detect_target, read_host_facts
    from mallorn.workers.host.code_digest import TVM_VERSION

    host = read_host_facts()["host_class"], TVM_VERSION
    local = [
        device
        for device in devices
        if device.info.is_local and (device.host_class, device.tvm_version) == host
    ]
    return parse_target(local[0].target) if local else detect_target()


def resolve_requested_target(target: str, is_here: bool) -> str:
    """Return the target that a user asked for. Raises InvalidTarget if it is invalid.

    For a service on this machine, the name of a kind of accelerator becomes the target of
    this machine's own, because a service knows only those that already have a device.
    """
    if kind_of_word(target) is not None:
        if not is_here:
            return target
        from mallorn.workers.device.target_support import resolve_target

        return resolve_target(target).text
    if target != LOCAL:
        parse_target(target)
    return target


class Starter:
    """Starts a service (`mallorn up`) on a data directory, unless one runs there."""

    def __init__(self, directory: DataDir) -> None:
        self._directory = directory
        self._process: subprocess.Popen[bytes] | None = None

    def start_unless_running(self) -> None:
        """Start a service unless one runs. Raises Unavailable if it ended at once."""
        is_held = self._directory.is_locked()
        if self._process is None and not is_held:
            print_line(f"starting the service on this machine, data in {self._directory.path}")
            log_file = _log(self._directory)
            log_file.unlink(missing_ok=True)
            with log_file.open("ab") as log:  # so that the stack may truncate a large log
                self._process = subprocess.Popen(
                    mallorn_command(
                        "up", "--port", "0", "--data", str(self._directory.path), "--until-unused"
                    ),
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    env={**os.environ, "PYTHONPATH": python_path()},
                    start_new_session=True,  # Ctrl-C pauses the job, which needs the stack
                )
        elif self._process is not None and self._process.poll() is not None:
            if not is_held:
                words = _log(self._directory).read_text(errors="replace").strip()
                message = f"the service did not start on this machine:\n{words}"
                raise Unavailable(message, hint=f"ls {self._directory.logs}")
            self._process = None  # another command started a stack first: use that

    def wait_until_ready(self) -> StackInfo:
        """Return the service once it answers; start it if none runs. Raises Unavailable."""
        deadline = time.monotonic() + START_TIMEOUT_SEC
        try:
            while time.monotonic() < deadline:
                info = self._directory.read_running_stack()
                if info is not None and http_answers(f"{info.url}{API}/healthz"):
                    return info
                self.start_unless_running()
                time.sleep(POLL_SEC)
        except KeyboardInterrupt:
            self._stop()
            raise
        self._stop()
        message = f"no service became ready on {self._directory.path}"
        raise Unavailable(message, hint=f"less {_log(self._directory)}")

    def _stop(self) -> None:
        if self._process is not None:
            self._process.terminate()

    def wait_until_ended(self) -> None:
        """Wait until the service has ended, unless other commands still use it."""
        deadline = time.monotonic() + STOP_TIMEOUT_SEC
        while time.monotonic() < deadline:
            is_running = self._process is not None and self._process.poll() is None
            if not is_running and not self._directory.is_locked():
                return
            if self._directory.has_users(LOCK_PATIENCE_SEC):
                return
            time.sleep(POLL_SEC)


def _log(directory: DataDir) -> Path:
    return directory.logs / "up.log"
