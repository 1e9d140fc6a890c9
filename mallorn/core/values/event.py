"""Events of a job: one class per kind of event, distinguished by `kind`."""

from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal, Union

from pydantic import ConfigDict, Field, JsonValue, TypeAdapter, ValidationError

from mallorn.core.states import JobState
from mallorn.core.values.base import Value
from mallorn.core.values.decision_log import RoundStats
from mallorn.core.values.expected_gain import Outlook
from mallorn.core.values.finish_report import FinishReport
from mallorn.core.values.job import SuggestedOptions


class JobEvent(Value):
    """Base class of a job's events; `kind` names the class, other fields are its data."""

    kind: str

    def payload(self) -> dict[str, object]:
        """Return the fields that are stored next to the kind: those that were set."""
        return self.model_dump(mode="json", exclude={"kind"}, exclude_unset=True)

    def to_client_json(self) -> dict[str, object]:
        """Return all fields with the kind, as sent to clients that follow the job."""
        return self.model_dump(mode="json")


class SubmittedEvent(JobEvent):
    kind: Literal["submitted"] = "submitted"
    trials: int | None = None
    minutes: float | None = None


class ImportedEvent(JobEvent):
    kind: Literal["imported"] = "imported"
    tasks: int
    known_measurements: Annotated[
        int, Field(description="Measurements of these tasks that the dataset already has.")
    ]


class FamilyChangedEvent(JobEvent):
    """A task moved to another family, whose measurements and cost model it now shares."""

    kind: Literal["family_changed"] = "family_changed"
    task: int
    name: str
    old: Annotated[str, Field(alias="from")]
    new: Annotated[str, Field(alias="to")]
    reason: str


class RoundPlannedEvent(JobEvent):
    """The planner opened a round; the planner's other notes are further fields."""

    model_config = ConfigDict(extra="allow")

    kind: Literal["round_planned"] = "round_planned"
    round: int
    task: int
    name: str
    size: int
    policy: str = ""
    score: float | None = None
    why: str = ""
    outlook: Annotated[
        Outlook | None, Field(description="null until every task that matters has a time.")
    ] = None


class MeasuredEvent(JobEvent):
    """Some candidates of a round have outcomes."""

    kind: Literal["measured"] = "measured"
    round: int
    task: int
    name: str
    trials: int
    failures: int
    best_us: Annotated[float | None, Field(description="Best latency of these; null: none is valid.")]


class RoundClosedEvent(JobEvent, RoundStats):
    kind: Literal["round_closed"] = "round_closed"
    round: int
    task: int
    name: str


class RoundReturnedEvent(JobEvent):
    """A round lost its worker and waits for another."""

    kind: Literal["round_returned"] = "round_returned"
    round: int
    attempt: int
    error: str


class RoundPoisonedEvent(JobEvent):
    """A round failed three times, or lost ten workers, and was given up."""

    kind: Literal["round_poisoned"] = "round_poisoned"
    round: int
    attempt: int
    error: str


class StageReturnedEvent(JobEvent):
    """An import or a finish was interrupted and will be retried."""

    kind: Literal["stage_returned"] = "stage_returned"
    state: JobState
    error: str


class WarningEvent(JobEvent):
    kind: Literal["warning"] = "warning"
    source: str
    message: str
    hint: str = ""


class FinishingEvent(JobEvent):
    kind: Literal["finishing"] = "finishing"
    reason: Annotated[str, Field(description="Why tuning ended, as text.")]
    outlook: Annotated[Outlook | None, Field(description="What more trials would bring; null: unknown.")] = (
        None
    )


class CheckedEvent(JobEvent):
    """The finish decided which schedule a task gets, if any."""

    kind: Literal["checked"] = "checked"
    task: int
    name: str
    latency_us: Annotated[float | None, Field(description="null: no candidate won.")]


class ExportedEvent(JobEvent):
    """A first export, checked as a whole, can be downloaded; the job continues to improve it."""

    kind: Literal["exported"] = "exported"
    seconds: Annotated[float, Field(description="Seconds since the job was submitted.")]
    latency_ratio: Annotated[
        float | None, Field(description="The model's time over onnxruntime's; null: not timed.")
    ] = None


class DoneEvent(JobEvent):
    kind: Literal["done"] = "done"
    report: FinishReport


class BenchStartedEvent(JobEvent):
    """A done job returned to its finish, which only times its exported schedules again."""

    kind: Literal["bench_started"] = "bench_started"


class BenchedEvent(JobEvent):
    """A done job's exported schedules were timed again."""

    kind: Literal["benched"] = "benched"
    report: Annotated[FinishReport, Field(description="Latencies, conditions and errors; no other fields.")]


class FailedEvent(JobEvent):
    kind: Literal["failed"] = "failed"
    error: Annotated[str, Field(description="Class of the error; may be empty.")] = ""
    detail: str = ""
    hint: str = ""
    suggest: SuggestedOptions | None = None
    reason: Annotated[str, Field(description="Reason as text, if there is no error.")] = ""


class PausedEvent(JobEvent):
    kind: Literal["paused"] = "paused"
    state: JobState
    trials: int | None = None
    reason: str = ""


class ResumedEvent(JobEvent):
    kind: Literal["resumed"] = "resumed"
    state: JobState
    trials: int | None = None


class CancelledEvent(JobEvent):
    kind: Literal["cancelled"] = "cancelled"
    state: JobState
    trials: int | None = None


_CLASSES: Final = JobEvent.__subclasses__()  # those above
_UNION: Any = Annotated[Union[*_CLASSES], Field(discriminator="kind")]
KINDS: Final = frozenset(str(each.model_fields["kind"].default) for each in _CLASSES)
EVENT: Final[TypeAdapter[JobEvent]] = TypeAdapter(_UNION)


class OtherEvent(JobEvent):
    """An event of another version, with its data unparsed."""

    data: dict[str, JsonValue]

    def payload(self) -> dict[str, object]:
        return dict(self.data)

    def to_client_json(self) -> dict[str, object]:
        return {"kind": self.kind, **self.data}


def read_event(kind: str, payload: Mapping[str, object]) -> JobEvent:
    """Parse a stored event; an unknown or invalid one becomes an OtherEvent."""
    try:
        return EVENT.validate_python({**payload, "kind": kind})
    except ValidationError:
        return OtherEvent(kind=kind, data={name: value for name, value in payload.items() if name != "kind"})
