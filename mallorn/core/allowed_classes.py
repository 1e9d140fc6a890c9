"""Check of users' own classes: installed entry points and an allow-list (ADR 0037)."""

from collections.abc import Sequence
from contextlib import suppress
from importlib.metadata import entry_points
from typing import Final

from mallorn.core.errors import ClassRefused, PluginFailed
from mallorn.core.job_options import JobOptions
from mallorn.core.registry import CONTRACTS, REGISTRY, WORDS, resolve

ANY: Final = "*"


def check_classes(options: JobOptions, listed: Sequence[str]) -> None:
    """Raise ClassRefused, listing the allowed ones, for other classes; import nothing."""
    for seam, name in own_classes(options):
        installed = [
            word for entry in entry_points(group=f"mallorn.{seam}") for word in (entry.name, entry.value)
        ]
        module = name.partition(":")[0]
        if not {ANY, name, f"{module}:*"} & {*listed, *installed}:
            allowed = ", ".join([*sorted(REGISTRY[seam]), *installed, *listed])
            raise ClassRefused(
                f"the {WORDS[seam]} {name} is none that the operator of this service allows",
                hint=f"allowed: {allowed}   (an operator allows more with MALLORN_PLUGINS={name})",
            )


def check_fit(options: JobOptions, seams: Sequence[str]) -> None:
    """Raise ClassRefused for a class of the wrong type; ignore classes not importable here."""
    for seam, name in own_classes(options):
        if seam in seams:
            with suppress(
                PluginFailed
            ):  # another worker may have it; a round without it continues and reports that
                resolve(seam, name)


def own_classes(options: JobOptions) -> list[tuple[str, str]]:
    """Return the (seam, name) pairs of a job's options that name users' own classes."""
    pairs = [(seam, str(getattr(options, seam))) for seam in CONTRACTS]
    return [(seam, name) for seam, name in pairs if name not in REGISTRY[seam]]
