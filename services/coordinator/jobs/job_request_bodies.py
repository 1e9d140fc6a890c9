"""Request bodies for submitting and resuming jobs."""

from typing import Annotated, Any, Final

from pydantic import BaseModel, ConfigDict, Field, JsonValue, field_validator, model_validator

from mallorn.core.job_options import JobOptions
from mallorn.core.labels import MOST_LABELS, LabelKey, Labels, LabelValue
from mallorn.core.storable_json import check_storable
from mallorn.services.coordinator.web.response_types import MAX_INT

LONGEST_OPTIONS: Final = 32_000


class JobIn(BaseModel):
    """A tuning job: the model, its target, a budget and options."""

    model_config = ConfigDict(extra="forbid")

    model_id: Annotated[str, Field(max_length=200, description="SHA-256 of an uploaded model.")]
    target: Annotated[
        str | dict[str, JsonValue],
        Field(
            description="`local`, `cuda`, JSON (text or object), or a TVM tag such as `nvidia/nvidia-h100`."
        ),
    ]
    trials: Annotated[
        int | None,
        Field(
            ge=0,
            le=MAX_INT,
            description="Budget in candidates; 0: use known or default schedules. Null: as "
            "many as fit into `minutes` or, without it, as are worth their time.",
        ),
    ] = None
    minutes: Annotated[
        float | None, Field(gt=0, allow_inf_nan=False, description="Time budget from submission to export.")
    ] = None
    seed: Annotated[int, Field(ge=0, le=MAX_INT)] = 0
    name: Annotated[
        str | None, Field(max_length=200, description="Display name; default: the model name.")
    ] = None
    priority: Annotated[int, Field(ge=-1000, le=1000, description="Higher goes first.")] = 0
    labels: Annotated[Labels, Field(description="Labels to list it by: values by key; `` for none.")] = {}
    options: JobOptions = JobOptions()

    @model_validator(mode="before")
    @classmethod
    def _require_storable(cls, value: Any) -> Any:
        check_storable(value)
        return value

    @field_validator("options")
    @classmethod
    def _is_short(cls, options: JobOptions) -> JobOptions:
        # Every listing of jobs contains the options.
        if (length := len(options.model_dump_json(exclude_defaults=True))) > LONGEST_OPTIONS:
            raise ValueError(f"the options have {length:,} characters as JSON, more than {LONGEST_OPTIONS:,}")
        return options


class JobChangeIn(BaseModel):
    """Changes of a job."""

    model_config = ConfigDict(extra="forbid")

    labels: Annotated[
        dict[LabelKey, LabelValue | None],
        Field(
            max_length=2 * MOST_LABELS,
            description="New values of labels by key; null removes a label.",
            json_schema_extra={"additionalProperties": False},
        ),
    ]


class ResumeIn(BaseModel):
    """Budget with which a job resumes."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "not": {
                "properties": {"auto": {"const": True}, "trials": {"exclusiveMinimum": 0}},
                "required": ["auto", "trials"],
            }
        },
    )

    trials: Annotated[int, Field(ge=0, le=MAX_INT, description="Candidates to add to the budget.")] = 0
    auto: Annotated[
        bool, Field(description="Replace any budget: try candidates while they are worth it.")
    ] = False

    @model_validator(mode="after")
    def _refuse_trials_with_auto(self) -> "ResumeIn":
        if self.auto and self.trials:
            raise ValueError("give `trials` or `auto`, not both")
        return self
