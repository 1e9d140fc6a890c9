"""Route that lists the options of a job."""

from typing import Annotated, Final, Literal

from fastapi import APIRouter
from pydantic import BaseModel, Field, JsonValue
from pydantic.json_schema import JsonSchemaValue

from mallorn.core.job_options import JobOptions, accepted_names
from mallorn.services.coordinator.web.response_types import ListOut

router = APIRouter(prefix="/options", tags=["jobs"])
Kind = Literal["choice", "boolean", "integer", "number", "text", "texts", "shapes", "object"]
#: The kind of an option by the type in its JSON schema.
KINDS: Final[dict[str | None, Kind]] = {
    "boolean": "boolean",
    "integer": "integer",
    "number": "number",
    "string": "text",
    "array": "texts",
}


class OptionOut(BaseModel):
    """Description of a job option, with all that a form needs to ask for it."""

    name: str
    description: Annotated[str, Field(description="What the option decides.")]
    kind: Annotated[
        Kind,
        Field(
            description="`choice`: one of `choices`; `texts`: a list; `shapes`: integers by "
            "name; `object`: see the schema `JobOptions`."
        ),
    ]
    choices: Annotated[list[str], Field(description="Values of a `choice`; otherwise empty.")]
    default: JsonValue
    optional: Annotated[bool, Field(description="Whether null is allowed.")]
    minimum: float | None
    maximum: float | None
    exclusive_minimum: Annotated[float | None, Field(description="Exclusive lower bound.")]


@router.get("")
def list_options() -> ListOut[OptionOut]:
    """List the options of a job with their kinds, allowed values and defaults."""
    schema = JobOptions.model_json_schema()["properties"]
    defaults = JobOptions().model_dump(mode="json")
    return ListOut(items=[_option(name, schema[name], defaults[name]) for name in defaults])


def _option(name: str, schema: JsonSchemaValue, default: JsonValue) -> OptionOut:
    variants = schema.get("anyOf", [schema])
    shape = next(variant for variant in variants if variant.get("type") != "null")
    names = accepted_names(name)
    if names:
        kind: Kind = "choice"
    elif shape.get("additionalProperties"):
        kind = "shapes"
    else:
        kind = KINDS.get(shape.get("type"), "object")
    return OptionOut(
        name=name,
        description=schema["description"],
        kind=kind,
        choices=names,
        default=default,
        optional=len(variants) > 1,
        minimum=shape.get("minimum"),
        maximum=shape.get("maximum"),
        exclusive_minimum=shape.get("exclusiveMinimum"),
    )
