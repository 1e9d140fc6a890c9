"""Which machine this is."""

import hashlib
from pathlib import Path


def host_id() -> str:
    """Equal in every process that shares this machine's cores.

    The kernel's boot id and not /etc/machine-id: containers of one machine carry different files, and those
    of one image on different machines the same.
    """
    boot_id = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return hashlib.sha256(boot_id.encode()).hexdigest()[:16]
