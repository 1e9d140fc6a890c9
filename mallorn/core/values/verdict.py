"""Verdict on a job: how good its result is, in one line."""

from enum import StrEnum
from typing import Annotated

from pydantic import Field

from mallorn.core.values.base import Value


class Level(StrEnum):
    """How good a job's result is; `none` where there is nothing to judge."""

    GOOD = "good"  # as fast as onnxruntime, or faster
    FAIR = "fair"  # slightly slower, uncertain, or compared only with TVM's default build
    POOR = "poor"  # slower, or failed
    NONE = "none"


class Beside(Value):
    """The tuned model beside onnxruntime, as the whole verdict judges it."""

    level: Annotated[
        Level,
        Field(description="`good`: as fast or faster. `fair`: little slower, or uncertain. `poor`: slower."),
    ]
    words: Annotated[
        str,
        Field(description="As `as fast`, `1.4 times faster`, `7 % slower` or `0.98 to 1.12 times as fast`."),
    ]

    def __str__(self) -> str:
        return self.words


class Verdict(Value):
    """What a job's figures mean."""

    level: Annotated[
        Level,
        Field(
            description="`good`: as fast as onnxruntime or faster. `fair`: little slower, uncertain, or "
            "compared with TVM's default build alone. `poor`: slower, or failed. `none`: nothing to judge."
        ),
    ]
    summary: Annotated[str, Field(description="The judgement in one line.")]
    next: Annotated[str, Field(description="A command to type next; empty where nothing is left to do.")] = ""
    beside: Annotated[
        Beside | None, Field(description="How it stands beside onnxruntime; null where that was not timed.")
    ] = None

    def __str__(self) -> str:
        return self.summary
