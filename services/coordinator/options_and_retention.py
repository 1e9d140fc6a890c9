"""Routes that list the options of a job, and that show when the service deletes data."""

from typing import Annotated, Final, Literal

from fastapi import APIRouter
from pydantic import BaseModel, Field, JsonValue
from pydantic.json_schema import JsonSchemaValue

from mallorn.core.job_options import JobOptions, accepted_names
from mallorn.core.values.base import Value
from mallorn.services.coordinator.web.app_parts import PartsDep
from mallorn.services.coordinator.web.response_types import ListOut

router = APIRouter(tags=["jobs"])
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


@router.get("/options")
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


class Retention(Value):
    """Days after which data are deleted (0: never), and numbers of what is kept.

    An admin changes these through the service's settings of the same names.
    """

    keep_jobs_days: Annotated[
        float, Field(description="After a job's end: the job with its log and exported files.")
    ] = 0.0
    keep_events_days: Annotated[float, Field(description="After a job's end: its events and timeline.")] = 0.0
    keep_models_days: Annotated[float, Field(description="After its upload: a model without a job.")] = 0.0
    keep_audit_days: Annotated[float, Field(description="Entries of the audit log.")] = 0.0
    keep_audit_entries: Annotated[
        int, Field(description="Maximum number of audit-log entries; 0: no limit.")
    ] = 0
    keep_backups: Annotated[int, Field(description="Number of SQLite database backups.")] = 0


@router.get("/retention")
def show_retention(parts: PartsDep) -> Retention:
    """Show the retention settings (MALLORN_KEEP_*): when the service deletes which data."""
    return Retention.from_row(parts.settings)
