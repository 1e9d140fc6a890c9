"""Which machine this is."""

import hashlib
import os
import tempfile
from pathlib import Path
from typing import Final

#: Of `Settings.host_folder`. The parts of a service set it for processes whose temporary files lie elsewhere.
HOST_FOLDER_VARIABLE: Final = "MALLORN_HOST_FOLDER"
SEPARATE_LOCKS: Final = "builders run while candidates are timed, as worker and device share no locks"
SHARE_LOCKS: Final = "set MALLORN_HOST_FOLDER of both to one folder   (containers mount one volume there)"


def host_id() -> str:
    """Equal in every process that shares this machine's cores.

    The kernel's boot id and not /etc/machine-id: containers of one machine carry different files, and those
    of one image on different machines the same.
    """
    boot_id = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return hashlib.sha256(boot_id.encode()).hexdigest()[:16]


def host_folder() -> Path:
    """The directory for temporary files that all processes of this machine share."""
    return Path(os.environ.get(HOST_FOLDER_VARIABLE) or tempfile.gettempdir())
