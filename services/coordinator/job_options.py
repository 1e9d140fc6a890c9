"""What a job may ask for, and how long the service keeps what."""

from typing import Annotated, Literal

from fastapi import APIRouter
from pydantic import BaseModel, Field, JsonValue
from pydantic.json_schema import JsonSchemaValue

from mallorn.core.options import JobOptions, choices
from mallorn.core.values.base import Value
from services.coordinator.web.app_context import PartsDep
from services.coordinator.web.paging import ListOut

router = APIRouter(tags=["jobs"])
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


@router.get("/options")
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


class Retention(Value):
    """Days until something is deleted, 0: it is kept; and how many backups are.

    An admin changes the settings of the same names.
    """

    keep_jobs_days: Annotated[
        float, Field(description="After a job's end: the job, its log and its export.")
    ] = 0.0
    keep_events_days: Annotated[float, Field(description="After a job's end: its events and timeline.")] = 0.0
    keep_models_days: Annotated[float, Field(description="After its upload: a model without a job.")] = 0.0
    keep_audit_days: Annotated[float, Field(description="Entries of the audit log.")] = 0.0
    keep_backups: Annotated[int, Field(description="Backups of a SQLite database: how many are kept.")] = 0


@router.get("/retention")
def show_retention(parts: PartsDep) -> Retention:
    """Show after how many days what is deleted: the settings MALLORN_KEEP_* of the service."""
    settings = parts.settings
    return Retention(**{name: getattr(settings, name) for name in Retention.model_fields})
