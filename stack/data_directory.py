"""The data directory of an embedded stack: its files, its locks, and a file-system check."""

import errno
import fcntl
import hashlib
import json
import os
import re
import secrets
import shutil
import socket
import stat
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Final

from mallorn.core.address_checks import ROOT_UID, check_own_service
from mallorn.core.errors import Conflict, InvalidRequest, StorageFull
from mallorn.core.fleet_key import KEY_FILE
from mallorn.core.host_id import host_id
from mallorn.core.private_files import close_to_others, make_private_directory

MOUNTS: Final = Path("/proc/self/mountinfo")
# By file system type, the mount options with which flock is not passed on to the server.
LOCAL_LOCKS: Final = {
    "nfs": {"nolock", "local_lock=all", "local_lock=flock"},
    "nfs4": {"nolock", "local_lock=all", "local_lock=flock"},
    "cifs": {"nobrl", "nolock"},
    "smb3": {"nobrl", "nolock"},
    "lustre": {"localflock"},
}
ALWAYS_LOCAL: Final = frozenset({"fuse.sshfs", "afs"})


@dataclass(frozen=True)
class Mount:
    """A mounted file system: its mount point, type and mount options."""

    point: Path
    kind: str
    options: frozenset[str]

    @property
    def has_local_locks(self) -> bool:
        """Whether flock on it ignores locks that other machines hold on the same file."""
        return self.kind in ALWAYS_LOCAL or bool(LOCAL_LOCKS.get(self.kind, set()) & self.options)


def mount_of(path: Path) -> Mount | None:
    """Return the mount on which a path lies; None if the kernel lists no mounts."""
    if not MOUNTS.is_file():
        return None
    mounts: list[Mount] = []
    for line in MOUNTS.read_text().splitlines():
        # `id parent dev root point options ... - kind source options`, with octal escapes.
        mount_fields, _, source_fields = line.partition(" - ")
        _, _, _, _, escaped_point, options, *_ = mount_fields.split(" ")
        kind, _, *super_options = source_fields.split(" ")
        point = re.sub(rb"\\([0-7]{3})", lambda match: bytes([int(match[1], 8)]), os.fsencode(escaped_point))
        all_options = frozenset(",".join((options, *super_options)).split(","))
        mounts.append(Mount(Path(os.fsdecode(point)), kind, all_options))
    candidates = [mount for mount in mounts if path.resolve().is_relative_to(mount.point)]
    # Of two mounts at one point, the later hides the earlier.
    return max(reversed(candidates), key=lambda mount: len(mount.point.parts), default=None)


# Checking a lock takes it for an instant, which is longer if many processes share a core.
LOCK_PATIENCE_SEC = 1.0
NO_LOCKS = frozenset({errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP})


class DataDirInUse(Conflict):
    """Another `mallorn up` holds this data directory."""


@dataclass(frozen=True)
class StackInfo:
    """Contents of `stack.json`: the addresses of a running stack, and its process id."""

    url: str
    pid: int
    redis_url: str
    tracker: str
    until_unused: bool  # started for a command, and stops with its last user


@dataclass(frozen=True)
class DataDir:
    """A data directory: its paths, its locks, and the running stack's `stack.json`."""

    path: Path

    @property
    def logs(self) -> Path:
        return self.path / "logs"

    @property
    def stack_file(self) -> Path:
        return self.path / "stack.json"

    @property
    def lock_file(self) -> Path:
        return self.path / "stack.lock"

    @property
    def users_file(self) -> Path:
        return self.path / "users.lock"

    @property
    def temporary_directory(self) -> Path:
        """Directory of the stack's temporary files: large models may not fit into /tmp."""
        return self.path / "scratch"

    @property
    def key_file(self) -> Path:
        return self.path / KEY_FILE

    @property
    def socket_directory(self) -> Path:
        """Private directory with a short path: a unix socket's has at most 100 bytes."""
        name = hashlib.sha256(str(self.path.resolve()).encode()).hexdigest()[:12]
        base = tempfile.gettempdir() if len(tempfile.gettempdir()) < 60 else "/tmp"  # noqa: S108
        return Path(base) / f"mallorn-{os.getuid()}-{name}"

    def create_directories(self) -> None:
        """Create the directories. Raises InvalidRequest for a bad path, or StorageFull."""
        mount = mount_of(self.path)
        if mount is not None and mount.has_local_locks:
            raise InvalidRequest(
                f"{self.path} lies on {mount.point}, a network file system ({mount.kind}) whose locks other "
                "machines do not see, so that two machines could write to one database",
                hint="choose a place on a disk of this machine with --data DIR",
            )
        try:
            make_private_directory(self.path)  # other users may not read models
            if self.lock_file.exists() or not any(self.path.iterdir()):
                close_to_others(self.path)
            make_private_directory(self.logs)
            make_private_directory(self.temporary_directory)
            self.lock_file.touch()
            self.users_file.touch()
            if not self.key_file.exists():
                # A link is atomic: tracker, devices and workers never see half a key.
                with tempfile.NamedTemporaryFile("w", dir=self.path, prefix="rpc-key-") as file:
                    file.write(secrets.token_hex(32))
                    file.flush()
                    with suppress(FileExistsError):
                        os.link(file.name, self.key_file)
        except (FileExistsError, NotADirectoryError):
            raise InvalidRequest(
                f"{self.path} is not a directory", hint="choose one with --data DIR"
            ) from None
        except PermissionError:
            raise InvalidRequest(
                f"{self.path} is not writable", hint="choose another with --data DIR"
            ) from None
        except OSError as error:
            raise StorageFull(
                f"cannot create {self.path}: {error.strerror}", hint="choose another with --data DIR"
            ) from None

    def read_stack(self) -> StackInfo | None:
        """Return the contents of `stack.json`; None if it is missing or invalid."""
        try:
            return StackInfo(**json.loads(self.stack_file.read_text()))
        except (FileNotFoundError, NotADirectoryError, ValueError, TypeError):
            return None

    def read_running_stack(self) -> StackInfo | None:
        """Return a running stack's `stack.json`, or None; raises NotYours, and as `is_locked`."""
        info = self.read_stack() if self.is_locked() else None
        if info is not None:  # the port is free while a coordinator starts again
            check_own_service(info.url, self.lock_file.stat().st_uid, ROOT_UID)
        return info

    @contextmanager
    def publish_stack_info(self, info: StackInfo) -> Iterator[None]:
        """Write `stack.json`, and delete it when the block ends."""
        draft = self.stack_file.with_suffix(".tmp")
        draft.write_text(json.dumps(asdict(info), indent=2))
        draft.replace(self.stack_file)
        try:
            yield
        finally:
            self.stack_file.unlink(missing_ok=True)

    @contextmanager
    def hold_stack_lock(self) -> Iterator[Callable[[str], None]]:
        """Lock the directory for one stack until the block ends; create `socket_directory`.

        Yields a function that writes the stack's URL into the lock file, for other
        processes' errors. Raises DataDirInUse if it is locked, else InvalidRequest.
        """
        with self.lock_file.open("r+") as file:
            if not _lock_with_timeout(file, LOCK_PATIENCE_SEC):
                raise _data_dir_in_use_error(self.path, _read_lock_holder(file))
            _write_lock_holder(file, "")
            self.stack_file.unlink(missing_ok=True)
            self.socket_directory.mkdir(mode=0o700, exist_ok=True)
            info = self.socket_directory.lstat()
            # Another owner of this directory could replace the broker's socket.
            if not stat.S_ISDIR(info.st_mode) or info.st_uid != os.getuid() or info.st_mode & 0o077:
                raise InvalidRequest(
                    f"{self.socket_directory} is not a private directory of yours",
                    hint=f"rm -rf {self.socket_directory}",
                )
            for file_left in self.socket_directory.iterdir():  # by a killed stack: this one has the lock
                file_left.unlink()
            try:
                yield lambda url: _write_lock_holder(file, url)
            finally:
                shutil.rmtree(self.socket_directory)

    def is_locked(self) -> bool:
        """Return whether a stack has the lock. Raises DataDirInUse for another host's."""
        with suppress(FileNotFoundError, NotADirectoryError), self.lock_file.open() as file:
            if _try_lock(file, fcntl.LOCK_SH):
                return False
            # Until the new holder has signed, the file still names the last one.
            if _is_held_by_other_host(file) and _lock_with_timeout(file, LOCK_PATIENCE_SEC, fcntl.LOCK_SH):
                return False
            if _is_held_by_other_host(file):
                raise _data_dir_in_use_error(self.path, _read_lock_holder(file))
            return True
        return False

    @contextmanager
    def hold_user_lock(self) -> Iterator[None]:
        """Hold a shared lock as a user of the stack; the kernel releases it if the user dies."""
        with self.users_file.open("r+") as file:
            fcntl.flock(file, fcntl.LOCK_SH)
            yield

    def has_users(self, patience_sec: float = 0.0) -> bool:
        """Return whether any process holds the user lock; wait for short checks by others."""
        with self.users_file.open("r+") as file:
            return not _lock_with_timeout(file, patience_sec)


def _write_lock_holder(file: IO[str], url: str) -> None:
    file.seek(0)
    file.truncate()
    host_fields = {"host": socket.gethostname(), "host_id": host_id()}
    file.write(json.dumps({"pid": os.getpid(), "url": url, **host_fields}))
    file.flush()


def _read_lock_holder(file: IO[str]) -> dict[str, object]:
    """Return pid, URL and host that the lock's holder wrote; empty before that."""
    file.seek(0)
    try:
        holder = json.loads(file.read())
    except ValueError:
        return {}
    return holder if isinstance(holder, dict) else {}


def _is_held_by_other_host(file: IO[str]) -> bool:
    return _read_lock_holder(file).get("host_id", host_id()) != host_id()


def _lock_with_timeout(file: IO[str], patience_sec: float, kind: int = fcntl.LOCK_EX) -> bool:
    deadline = time.monotonic() + patience_sec
    while not _try_lock(file, kind):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


def _try_lock(file: IO[str], kind: int) -> bool:
    """Return whether the lock was free. Raises InvalidRequest if locks are not supported."""
    try:
        fcntl.flock(file, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        if error.errno not in NO_LOCKS:
            raise
        raise InvalidRequest(
            f"{file.name} cannot be locked: {error.strerror}",
            hint="choose a place on a disk of this machine with --data DIR",
        ) from None
    return True


def _data_dir_in_use_error(path: Path, holder: dict[str, object]) -> DataDirInUse:
    pid, url, host = (holder.get(name, "") for name in ("pid", "url", "host"))
    command = f"`mallorn up` with pid {pid}" if pid else "another `mallorn up`"
    if holder.get("host_id", host_id()) != host_id():
        return DataDirInUse(
            f"{path} is in use by {command} on another machine, {host}",
            hint=f"ssh {host}, and type it there   (or: choose a place of this machine with --data DIR)",
        )
    if not url:
        return DataDirInUse(
            f"{path} is in use by {command}, which is starting", hint="mallorn up --data OTHER_DIR"
        )
    return DataDirInUse(
        f"{path} is in use by {command} at {url}",
        hint=f"MALLORN_URL={url} mallorn jobs   (or: mallorn up --data OTHER_DIR --port 0)",
    )
