"""What a device tells of a timing: each slice, and what of its host others had meanwhile."""

from typing import Annotated, NamedTuple

from pydantic import Field

from mallorn.core.values.base import Value


class Slice(NamedTuple):
    """Runs back to back."""

    mean_sec: Annotated[float, Field(ge=0, allow_inf_nan=False)]
    disturbed: (
        Annotated[float, Field(ge=0, le=1)] | None
    )  # the share of it in which its processors were others'; None: not counted


class SliceTimes(Value):
    """The slices of one call."""

    slices: Annotated[tuple[Slice, ...], Field(min_length=1)]
    cores: Annotated[int, Field(ge=1)]  # that the host has
    rivals: Annotated[float, Field(ge=0)]  # programs of others that competed for them, in the mean
    raised: bool  # whether the timed process goes before all others of its host
    gpu: tuple[str, ...] = ()  # what kept a GPU from its full speed, in words
