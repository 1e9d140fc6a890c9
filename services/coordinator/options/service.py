"""Reads the options of a job from their schema and the table of names."""

from typing import Any, Final, Literal

from mallorn.core.names import REGISTRY
from mallorn.core.options import JobOptions
from services.coordinator.options.schemas import OptionOut
from services.coordinator.paging import ListOut

Kind = Literal["choice", "integer", "number", "texts", "object"]
WORDS: Final = {
    "recipe": "Graph passes before tuning; plain is that of stock compile_relax.",
    "search": "Proposes candidates.",
    "cost_model": "Predicts which candidates are fast.",
    "sampler": "Picks a round's batch out of the scored pool.",
    "stopping": "Decides when one timing is good enough.",
    "policy": "Decides which task is next.",
    "families": "Decides which tasks share measurements and a cost model.",
    "measurer": "Builds and times: tvm on a device, replay from recordings.",
    "round_size": "Candidates a round; empty: as many as the planner finds right.",
    "task_trials": "The budget of every task alone; empty: as much as the job's allows.",
    "only": "Tune only tasks whose names match one of these patterns, as conv2d*.",
    "build_timeout_sec": "Seconds until a build is given up.",
    "run_timeout_sec": "Seconds until a run on the device is given up.",
    "evaluator": "How one timing is taken: number, repeat, min_repeat_ms.",
    "input_shapes": "Binds the free dimensions of the model's inputs.",
}


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
        words=WORDS[name],
        kind=_kind(name, shape),
        choices=sorted(REGISTRY.get(name, ())),
        default=default,
        optional=len(variants) > 1,
        minimum=shape.get("minimum"),
        maximum=shape.get("maximum"),
        above=shape.get("exclusiveMinimum"),
    )


def _kind(name: str, shape: dict[str, Any]) -> Kind:
    if name in REGISTRY:
        return "choice"
    kinds: dict[str | None, Kind] = {"integer": "integer", "number": "number", "array": "texts"}
    return kinds.get(shape.get("type"), "object")
