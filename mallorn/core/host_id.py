"""Identity of this machine, and the folder that its processes share."""

import hashlib
import os
import tempfile
from pathlib import Path
from typing import Final

#: Variable of `Settings.host_folder`, for children whose own temporary folder is elsewhere.
HOST_FOLDER_VARIABLE: Final = "MALLORN_HOST_FOLDER"
SEPARATE_LOCKS: Final = "builders run while candidates are timed, as worker and device share no locks"
SHARE_LOCKS: Final = "set MALLORN_HOST_FOLDER of both to one folder   (containers mount one volume there)"


def host_id() -> str:
    """Return an id that is equal for all processes of one machine, also in containers.

    It is derived from the kernel's boot id: /etc/machine-id differs between containers of
    one machine and is the same for containers of one image on different machines.
    """
    boot_id = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return hashlib.sha256(boot_id.encode()).hexdigest()[:16]


def host_folder() -> Path:
    """Return the folder of temporary files that all processes of this machine share."""
    return Path(os.environ.get(HOST_FOLDER_VARIABLE) or tempfile.gettempdir())


def share_locks(host: str, locks: str, other_host: str, other_locks: str) -> bool:
    """Return whether builds of one process cannot disturb timings by the other.

    Processes of one host need one lock file for that; those of different hosts need none
    (True). Empty `locks`, of older versions or unreadable files, count as the same file.
    """
    return host != other_host or locks == other_locks or "" in (locks, other_locks)
