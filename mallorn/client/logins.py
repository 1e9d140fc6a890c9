"""Addresses and keys that `mallorn login` keeps in a file of mode 0600."""

import os
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from pydantic import Field, ValidationError

from mallorn.core.errors import InvalidRequest
from mallorn.core.private_files import make_private_directory
from mallorn.core.redaction import hide
from mallorn.core.values.base import Value


class Login(Value):
    """A service and the key to present to it; `key_id` is empty unless the sign-in made it."""

    url: str
    api_key: str = Field("", repr=False)
    key_id: str = ""


class Logins(Value):
    """All kept services by name; commands use the current one."""

    current: str = ""
    services: Mapping[str, Login] = {}


def logins_file() -> Path:
    """Return the path of the file, in the user's configuration directory."""
    base = os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config"
    return Path(base, "mallorn", "logins.json")


def read_logins() -> Logins:
    """Read the file; it may be missing or unreadable. Raises InvalidRequest if it is damaged."""
    with suppress(FileNotFoundError, NotADirectoryError, PermissionError):
        try:
            return Logins.model_validate_json(logins_file().read_bytes())
        except ValidationError:
            message = f"{logins_file()} is not what `mallorn login` writes"
            raise InvalidRequest(message, hint=f"rm {logins_file()}   (then: mallorn login URL)") from None
    return Logins()


def write_logins(current: str, services: Mapping[str, Login]) -> None:
    """Replace the file."""
    file = logins_file()
    make_private_directory(file.parent)
    text = Logins(current=current, services=services).model_dump_json(indent=2)
    with tempfile.NamedTemporaryFile("w", dir=file.parent, delete=False) as draft:  # has mode 0600
        draft.write(text + "\n")
    os.replace(draft.name, file)


def current_url() -> str | None:
    """Return the address of the current service; None if a data directory is named instead."""
    if "MALLORN_DATA_DIR" in os.environ:
        return None
    logins = read_logins()
    login = logins.services.get(logins.current)
    return None if login is None else login.url


def key_of(url: str) -> str | None:
    """Return the key that is kept for exactly this address; None if there is none."""
    services = read_logins().services.values()
    key = next((login.api_key for login in services if login.url == url.rstrip("/")), None)
    hide(key)
    return key or None
