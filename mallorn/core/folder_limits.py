"""Limits of what untrusted processes store in a folder; RLIMIT_FSIZE limits one file."""

import os
from contextlib import suppress
from pathlib import Path
from typing import Final

MOST_BYTES: Final = 64 << 30
MOST_FILES: Final = 100_000


def find_excess(folder: Path, most_bytes: int = MOST_BYTES, most_files: int = MOST_FILES) -> str:
    """Return which limit the files below a folder exceed, in words; empty if none. Files that
    were removed while they are open are not counted."""
    used_bytes = count = 0
    for parent, folders, files in os.walk(folder):
        count += len(folders) + len(files)
        for name in files:
            with suppress(OSError):  # it was removed meanwhile
                used_bytes += os.lstat(os.path.join(parent, name)).st_blocks * 512
        if count > most_files:
            return f"more than {most_files} files"
        if used_bytes > most_bytes:
            return f"more than {most_bytes >> 30} GiB"
    return ""
