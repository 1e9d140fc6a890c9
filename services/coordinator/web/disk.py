"""A full disk cannot be written down in the database that lies on it: the coordinator looks for itself."""

import os
from typing import Final

from sqlalchemy import make_url

from mallorn.core.errors import StorageFull
from mallorn.core.settings import Settings

# With less than this a database of SQLite cannot be relied on to commit.
LEAST_BYTES: Final = 256 * 1024


def full_disk_words(settings: Settings) -> str:
    """What a job waits for while the embedded database has no room to grow; otherwise nothing."""
    url = make_url(settings.database_url)
    if url.get_backend_name() != "sqlite" or not url.database:
        return ""
    disk = os.statvfs(os.path.dirname(os.path.abspath(url.database)))
    return StorageFull().message if disk.f_bavail * disk.f_frsize < LEAST_BYTES else ""
