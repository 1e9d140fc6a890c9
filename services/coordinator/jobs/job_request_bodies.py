"""Request bodies for submitting and resuming jobs."""

from typing import Annotated, Any, Final

from pydantic import BaseModel, ConfigDict, Field, JsonValue, field_validator, model_validator

from mallorn.core.job_options import JobOptions
from mallorn.core.storable_json import check_storable
from services.coordinator.web.paging import MAX_INT

LONGEST_OPTIONS: Final = 32_000


class JobIn(BaseModel):
    """Model + target + budget + options."""

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
            description="Candidates to try; 0: what is known already, or sane defaults. Without it as many "
            "as are worth their seconds, or as fit where `minutes` are given.",
        ),
    ] = None
    minutes: Annotated[
        float | None, Field(gt=0, allow_inf_nan=False, description="Wall time from submit to export.")
    ] = None
    seed: Annotated[int, Field(ge=0, le=MAX_INT)] = 0
    name: Annotated[
        str | None, Field(max_length=200, description="A name for people; default: the model's.")
    ] = None
    priority: Annotated[int, Field(ge=-1000, le=1000, description="Higher goes first.")] = 0
    options: JobOptions = JobOptions()

    @model_validator(mode="before")
    @classmethod
    def _can_be_stored(cls, value: Any) -> Any:
        check_storable(value)
        return value

    @field_validator("options")
    @classmethod
    def _is_short(cls, options: JobOptions) -> JobOptions:
        # Every listing of jobs contains the options.
        if (length := len(options.model_dump_json(exclude_defaults=True))) > LONGEST_OPTIONS:
            raise ValueError(f"as JSON they have {length:,} characters, more than {LONGEST_OPTIONS:,}")
        return options


class ResumeIn(BaseModel):
    """With what a job goes on."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "not": {
                "properties": {"auto": {"const": True}, "trials": {"exclusiveMinimum": 0}},
                "required": ["auto", "trials"],
            }
        },
    )

    trials: Annotated[int, Field(ge=0, le=MAX_INT, description="Added to the budget.")] = 0
    auto: Annotated[
        bool, Field(description="Instead of any budget: as many trials as are worth their seconds.")
    ] = False

    @model_validator(mode="after")
    def _is_one_of_both(self) -> "ResumeIn":
        if self.auto and self.trials:
            raise ValueError("a job goes on by `trials` or by `auto`, not by both")
        return self
