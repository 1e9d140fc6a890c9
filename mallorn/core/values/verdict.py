"""Verdict on a job: how good its result is, in one line."""

from enum import StrEnum
from typing import Annotated

from pydantic import Field

from mallorn.core.values.base import Value


class Level(StrEnum):
    """How good a job's result is; `none` if there is nothing to judge."""

    GOOD = "good"  # as fast as onnxruntime, or faster
    FAIR = "fair"  # slightly slower, uncertain, or compared only with TVM's default build
    POOR = "poor"  # slower, or failed
    NONE = "none"


class Comparison(Value):
    """The tuned model compared with onnxruntime, by the same rules as the verdict."""

    level: Annotated[
        Level,
        Field(description="`good`: as fast or faster. `fair`: little slower, or uncertain. `poor`: slower."),
    ]
    text: Annotated[
        str, Field(description="For example `as fast`, `7 % slower` or `0.98 to 1.12 times as fast`.")
    ]

    def __str__(self) -> str:
        return self.text


class Verdict(Value):
    """How good a job's result is, and what to do next."""

    level: Annotated[
        Level,
        Field(
            description="`good`: at least as fast as onnxruntime. `fair`: a bit slower, uncertain, or "
            "compared only with TVM's default build. `poor`: slower, or failed. `none`: not "
            "judged."
        ),
    ]
    summary: Annotated[str, Field(description="The verdict in one line.")]
    next_command: Annotated[
        str, Field(description="The next command to type; empty if nothing is left to do.")
    ] = ""
    comparison: Annotated[
        Comparison | None, Field(description="Comparison with onnxruntime; null: it was not timed.")
    ] = None

    def __str__(self) -> str:
        return self.summary
