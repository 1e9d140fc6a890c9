"""A job option as the API shows it."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field


class OptionOut(BaseModel):
    """One option of a job, for whoever asks a user for it."""

    name: str
    words: Annotated[str, Field(description="What it decides.")]
    kind: Annotated[
        Literal["choice", "integer", "number", "text", "texts", "shapes", "object"],
        Field(
            description="`choice`: one of `choices`; `texts`: a list; `shapes`: numbers for every name; "
            "`object`: see the schema of a job."
        ),
    ]
    choices: Annotated[list[str], Field(description="Every name it may have; empty unless it is a choice.")]
    default: Any
    optional: Annotated[bool, Field(description="Whether null is a value.")]
    minimum: float | None
    maximum: float | None
    above: Annotated[float | None, Field(description="A bound that is no value itself.")]
