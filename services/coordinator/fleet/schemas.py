"""The fleet's activity as the API shows it."""

from typing import Annotated, Self

from pydantic import BaseModel, Field

from db.repositories.activity import Stint
from db.repositories.stage_runs import StageStint
from mallorn.core.states import RoundState, StageKind

PRIVATE = "Null: another owner's."


class StintOut(BaseModel):
    """A round on a worker, with what it did on one device."""

    round_id: int
    job_id: Annotated[str | None, Field(description=PRIVATE)]
    job_name: Annotated[str | None, Field(description=PRIVATE)]
    task_index: Annotated[int | None, Field(description=PRIVATE)]
    task_name: Annotated[str | None, Field(description=PRIVATE)]
    state: RoundState
    worker: str
    device: Annotated[str | None, Field(description="Null: nothing was timed yet.")]
    trials: Annotated[int, Field(description="Candidates with an outcome on this device.")]
    failures: int
    measuring_sec: Annotated[float, Field(description="How long they held the device.")]
    started_at: Annotated[float, Field(description="When its last attempt began.")]
    finished_at: float | None

    @classmethod
    def of(cls, found: Stint) -> Self:
        mine = found.mine
        return cls(
            round_id=found.round_id,
            job_id=found.job_id if mine else None,
            job_name=found.job_name if mine else None,
            task_index=found.task_index if mine else None,
            task_name=found.task_name if mine else None,
            state=RoundState(found.state),
            worker=found.worker,
            device=found.device,
            trials=found.trials,
            failures=found.failures,
            measuring_sec=found.measuring_sec,
            started_at=found.started_at,
            finished_at=found.finished_at,
        )


class StageOut(BaseModel):
    """An import, a training or a finish on a worker."""

    id: int
    job_id: Annotated[str | None, Field(description=PRIVATE)]
    job_name: Annotated[str | None, Field(description=PRIVATE)]
    kind: StageKind
    worker: str
    started_at: float
    finished_at: Annotated[
        float | None, Field(description="Null: it goes on. Of a dead worker when it was last seen.")
    ]

    @classmethod
    def of(cls, found: StageStint) -> Self:
        return cls(
            id=found.id,
            job_id=found.job_id if found.mine else None,
            job_name=found.job_name if found.mine else None,
            kind=StageKind(found.kind),
            worker=found.worker,
            started_at=found.started_at,
            finished_at=found.finished_at,
        )


class ActivityOut(BaseModel):
    """What ran within a window that ends now, and what waits."""

    now: Annotated[float, Field(description="By the database's clock.")]
    since: float
    stints: Annotated[list[StintOut], Field(description="Rounds, by start.")]
    stages: Annotated[list[StageOut], Field(description="What workers did besides, by start.")]
    complete: Annotated[bool, Field(description="False: older rounds or stages of the window were left out.")]
    queued_rounds: Annotated[int, Field(description="Planned rounds that no worker has begun.")]
    jobs: Annotated[dict[str, int], Field(description="Jobs of all owners that have not ended, by state.")]
