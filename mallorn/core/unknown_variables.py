"""Environment variables with our prefix that nothing reads: mostly misspelt settings."""

from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from itertools import pairwise
from typing import Final

from mallorn.core.settings import Settings

PREFIX: Final = str(Settings.model_config["env_prefix"])
#: Variables that our processes set for each other.
_BETWEEN_PROCESSES: Final = frozenset(
    PREFIX + name for name in ("CHILD_FD", "CHILD_SANDBOX", "CODE", "GATEWAY_FD", "KEEPER_FD", "READY_FILE")
)


def unknown_variables(environ: Mapping[str, str]) -> Iterator[str]:
    """Yield a sentence for each variable that nothing reads, with the most similar setting."""
    settings = {PREFIX + name.upper() for name in Settings.model_fields}
    for name, value in sorted(environ.items()):
        is_unread = name.startswith(PREFIX) and name not in settings | _BETWEEN_PROCESSES
        if is_unread and not is_service_link(name, value):
            similar = get_close_matches(name, settings, 1)
            yield f"nothing reads {name}" + (f"; did you mean {similar[0]}?" if similar else "")


def is_service_link(name: str, value: str) -> bool:
    """Return whether Kubernetes set a variable for a Service, such as MALLORN_PORT_80_TCP.

    No setting has such a name except MALLORN_PORT, which is checked by its value.
    """
    has_port = any(word == "PORT" and number.isdigit() for word, number in pairwise(name.split("_")))
    is_url = name.endswith("_PORT") and "://" in value
    return has_port or is_url or "_SERVICE_PORT" in name or name.endswith("_SERVICE_HOST")
