"""Variables of the environment that begin as ours do and that nothing reads: most are misspelt settings."""

from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from itertools import pairwise
from typing import Final

from mallorn.core.settings import Settings

PREFIX: Final = str(Settings.model_config["env_prefix"])
#: What processes of ours tell each other.
_BETWEEN_PROCESSES: Final = frozenset(
    PREFIX + name for name in ("CHILD_FD", "CHILD_SANDBOX", "CODE", "GATEWAY_FD", "KEEPER_FD", "READY_FILE")
)


def unknown_variables(environ: Mapping[str, str]) -> Iterator[str]:
    """Yield a sentence about each variable that nothing reads, with the nearest name that something does."""
    settings = {PREFIX + name.upper() for name in Settings.model_fields}
    for name, value in sorted(environ.items()):
        ours = name.startswith(PREFIX) and name not in settings | _BETWEEN_PROCESSES
        if ours and not is_service_link(name, value):
            near = get_close_matches(name, settings, 1)
            yield f"nothing reads {name}" + (f"; did you mean {near[0]}?" if near else "")


def is_service_link(name: str, value: str) -> bool:
    """Return whether Kubernetes set a variable: each pod gets those of every Service, as MALLORN_PORT_80_TCP.

    Settings end with none of these words, but for MALLORN_PORT, whose value tells.
    """
    of_port = any(word == "PORT" and after.isdigit() for word, after in pairwise(name.split("_")))
    is_url = name.endswith("_PORT") and "://" in value
    return of_port or is_url or "_SERVICE_PORT" in name or name.endswith("_SERVICE_HOST")
