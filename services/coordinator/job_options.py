"""Route that lists the options of a job."""

from typing import Annotated, Literal

from fastapi import APIRouter
from pydantic import BaseModel, Field, JsonValue
from pydantic.json_schema import JsonSchemaValue

from mallorn.core.job_options import JobOptions, choices
from services.coordinator.web.paging import ListOut

router = APIRouter(prefix="/options", tags=["jobs"])
Kind = Literal["choice", "integer", "number", "text", "texts", "shapes", "object"]


class OptionOut(BaseModel):
    """One option of a job, for whoever asks a user for it."""

    name: str
    words: Annotated[str, Field(description="What it decides.")]
    kind: Annotated[
        Kind,
        Field(
            description="`choice`: one of `choices`; `texts`: a list; `shapes`: numbers for every name; "
            "`object`: see the schema of a job."
        ),
    ]
    choices: Annotated[list[str], Field(description="Every name it may have; empty unless it is a choice.")]
    default: JsonValue
    optional: Annotated[bool, Field(description="Whether null is a value.")]
    minimum: float | None
    maximum: float | None
    above: Annotated[float | None, Field(description="A bound that is no value itself.")]


@router.get("")
def list_options() -> ListOut[OptionOut]:
    """List what a job's `options` may hold: every choice by its name, with the default."""
    schema = JobOptions.model_json_schema()["properties"]
    defaults = JobOptions().model_dump(mode="json")
    return ListOut(items=[_option(name, schema[name], defaults[name]) for name in defaults])


def _option(name: str, schema: JsonSchemaValue, default: JsonValue) -> OptionOut:
    variants = schema.get("anyOf", [schema])
    shape = next(variant for variant in variants if variant.get("type") != "null")
    return OptionOut(
        name=name,
        words=schema["description"],
        kind=_kind(name, shape),
        choices=choices(name),
        default=default,
        optional=len(variants) > 1,
        minimum=shape.get("minimum"),
        maximum=shape.get("maximum"),
        above=shape.get("exclusiveMinimum"),
    )


def _kind(name: str, shape: JsonSchemaValue) -> Kind:
    if choices(name):
        return "choice"
    if shape.get("additionalProperties"):
        return "shapes"
    kinds: dict[str | None, Kind] = {
        "integer": "integer",
        "number": "number",
        "string": "text",
        "array": "texts",
    }
    return kinds.get(shape.get("type"), "object")
