"""Reads the options of a job from their schema and the table of names."""

from typing import Any, Literal

from mallorn.core.options import JobOptions, choices
from services.coordinator.options.schemas import OptionOut
from services.coordinator.web.paging import ListOut

Kind = Literal["choice", "integer", "number", "text", "texts", "shapes", "object"]


def list_options() -> ListOut[OptionOut]:
    """In the order of the schema."""
    schema = JobOptions.model_json_schema()["properties"]
    defaults = JobOptions().model_dump(mode="json")
    return ListOut(items=[_option(name, schema[name], defaults[name]) for name in defaults])


def _option(name: str, schema: dict[str, Any], default: Any) -> OptionOut:
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


def _kind(name: str, shape: dict[str, Any]) -> Kind:
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
