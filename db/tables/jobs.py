"""Models, jobs and what a job is made of."""

from sqlalchemy import ForeignKey, Index, UniqueConstraint, false
from sqlalchemy.orm import Mapped, mapped_column

from db.tables.base import Base, BigId, CreatedAt, IdPk, Json, Timestamp, ValueType, partial_index
from mallorn.core.states import Cause, JobState, RoundState
from mallorn.core.values.decided_task import DecidedTask
from mallorn.core.values.decision_log import RoundNotes, RoundStats
from mallorn.core.values.finish_report import FinishReport
from mallorn.core.values.graph_report import GraphReport
from mallorn.core.values.job import JobWarning, SuggestedOptions
from mallorn.core.values.machine import Machine


class Model(Base):
    """An uploaded network, named by the SHA-256 of its bytes; the bytes lie in the artifact store."""

    __tablename__ = "models"

    id: Mapped[str] = mapped_column(primary_key=True)  # SHA-256, hex
    owner: Mapped[str] = mapped_column(primary_key=True)
    name: Mapped[str]
    size_bytes: Mapped[int] = mapped_column(BigId)
    created_at: Mapped[CreatedAt]


class Job(Base):
    """Model + target + budget + options; belongs to an owner."""

    __tablename__ = "jobs"
    __table_args__ = (
        UniqueConstraint("owner", "idempotency_key"),
        Index("ix_jobs_owner_created", "owner", "created_at"),
        Index("ix_jobs_state", "state"),
        Index("ix_jobs_finished", "finished_at"),
        # Few rows: those whose files are still to go.
        partial_index(
            "ix_jobs_leftovers", "deleted_at", where="deleted_at is not null and export_uri is not null"
        ),
        partial_index(
            "ix_jobs_unmeasured", "deleted_at", where="deleted_at is not null and context_id is null"
        ),
        partial_index(
            "ix_jobs_dropped_exports",
            "export_deleted_at",
            where="export_deleted_at is not null and export_uri is not null",
        ),
    )

    id: Mapped[str] = mapped_column(primary_key=True)
    owner: Mapped[str]
    name: Mapped[str]
    model_id: Mapped[str]
    target_id: Mapped[int] = mapped_column(ForeignKey("targets.id"))
    context_id: Mapped[int | None] = mapped_column(ForeignKey("contexts.id"))  # all its times compare in it
    machine: Mapped[Machine | None] = mapped_column(ValueType(Machine))  # settled before its first round
    # The budget, as raised by later resumes. None: as many as the minutes allow; without those `auto`.
    trials: Mapped[int | None]
    minutes: Mapped[float | None]
    seed: Mapped[int]
    priority: Mapped[int] = mapped_column(default=0)
    share_pass: Mapped[float | None]  # of the fair share, among its owner's jobs; None: no turn yet
    owner_pass: Mapped[float | None]  # its owner's among the owners, as of this job's last turn
    planned_at: Mapped[Timestamp | None]  # when its planning last looked at it
    options: Mapped[Json]  # mallorn.core.job_options.JobOptions
    private: Mapped[bool] = mapped_column(default=False, server_default=false())  # as they say
    state: Mapped[str] = mapped_column(default=JobState.QUEUED)
    resume_state: Mapped[str | None]  # where a paused job goes on, or where a failed one failed
    reason: Mapped[str] = mapped_column(default="")  # what it waits for, or why it ended, in words
    cause: Mapped[str] = mapped_column(default=Cause.OTHER, server_default=Cause.OTHER)  # of the reason
    cause_detail: Mapped[str] = mapped_column(default="", server_default="")  # NOT_HERE: why, in words
    suggest: Mapped[SuggestedOptions | None] = mapped_column(ValueType(SuggestedOptions))  # of a failed job
    tuning_ended: Mapped[str] = mapped_column(default="", server_default="")  # why, in words; empty: not yet
    warnings: Mapped[list[JobWarning]] = mapped_column(
        ValueType(list[JobWarning]), default=list, server_default="[]"
    )
    graph: Mapped[GraphReport | None] = mapped_column(ValueType(GraphReport))
    report: Mapped[FinishReport | None] = mapped_column(ValueType(FinishReport))
    export_uri: Mapped[str | None]
    export_deleted_at: Mapped[Timestamp | None]  # its files are gone, or go with the next tidying
    idempotency_key: Mapped[str | None]
    request_hash: Mapped[str | None]
    event_count: Mapped[int] = mapped_column(default=0)  # the last event's seq; its row lock orders events
    created_at: Mapped[CreatedAt]
    started_at: Mapped[Timestamp | None]
    finished_at: Mapped[Timestamp | None]
    archived_at: Mapped[Timestamp | None]  # set aside by its owner: out of the list, otherwise as ever
    deleted_at: Mapped[Timestamp | None]  # a tombstone (ADR 0013): nobody sees it, its rows keep teaching

    @property
    def auto(self) -> bool:
        """Whether it goes on while that is worth it, without another budget."""
        return self.trials is None and self.minutes is None


class Task(Base):
    """A workload inside a job, with how often the model calls it."""

    __tablename__ = "tasks"
    __table_args__ = (
        UniqueConstraint("job_id", "index"),
        Index("ix_tasks_workload", "workload_id"),
        Index("ix_tasks_family", "family", "workload_id"),
    )

    id: Mapped[IdPk]
    job_id: Mapped[str] = mapped_column(ForeignKey("jobs.id"))
    index: Mapped[int]
    name: Mapped[str]
    weight: Mapped[int]
    workload_id: Mapped[int] = mapped_column(ForeignKey("workloads.id"))
    family: Mapped[str] = mapped_column(default="")  # given by the planner's grouping when tuning starts
    family_why: Mapped[str] = mapped_column(default="")  # in words
    family_since: Mapped[int] = mapped_column(BigId, default=0)  # only later rounds speak for or against it
    known_at_start: Mapped[int] = mapped_column(default=0)  # measurements the dataset had before this job
    retired: Mapped[str] = mapped_column(default="")  # why no more rounds are planned, in words


class Round(Base):
    """One pull of the bandit: a batch of candidates of one task; the unit of leasing.

    Its proposals are a pure function of seed, cost_model_id, what the round state_from left to its searcher
    and the workload's measurements up to seen_upto. Who holds it stands in HeldWork: results of an older
    attempt are refused.
    """

    __tablename__ = "rounds"
    __table_args__ = (
        UniqueConstraint("job_id", "index"),
        Index("ix_rounds_state", "state"),
        Index("ix_rounds_finished", "finished_at"),
        Index("ix_rounds_workload", "workload_id", "target_id", "state"),
        # One round in flight per workload and target: proposals then see all that is known.
        partial_index(
            "uq_rounds_in_flight",
            "workload_id",
            "target_id",
            where="state in ('queued', 'leased')",
            unique=True,
        ),
    )

    id: Mapped[IdPk]
    job_id: Mapped[str] = mapped_column(ForeignKey("jobs.id"))
    task_id: Mapped[int] = mapped_column(ForeignKey("tasks.id"))
    workload_id: Mapped[int] = mapped_column(ForeignKey("workloads.id"))
    target_id: Mapped[int] = mapped_column(ForeignKey("targets.id"))
    index: Mapped[int]
    size: Mapped[int]
    seed: Mapped[int]
    searcher: Mapped[str]
    cost_model_id: Mapped[int | None] = mapped_column(ForeignKey("cost_models.id"))
    seen_upto: Mapped[int] = mapped_column(BigId)  # the newest measurement of the workload it may look at
    state_from: Mapped[int | None] = mapped_column(BigId)  # the task's round from whose SearchState itbegins
    reason: Mapped[RoundNotes] = mapped_column(ValueType(RoundNotes))  # why this task and why now
    state: Mapped[str] = mapped_column(default=RoundState.QUEUED)
    worker: Mapped[str | None]  # who began it last
    error: Mapped[str] = mapped_column(default="")
    created_at: Mapped[CreatedAt]
    started_at: Mapped[Timestamp | None]
    finished_at: Mapped[Timestamp | None]
    stats: Mapped[RoundStats | None] = mapped_column(ValueType(RoundStats))


class StageRun(Base):
    """A stretch of a worker's time that was no round: kept for the fleet's timeline alone."""

    __tablename__ = "stage_runs"
    __table_args__ = (Index("ix_stage_runs_started", "started_at"),)

    id: Mapped[IdPk]
    job_id: Mapped[str] = mapped_column(ForeignKey("jobs.id"))
    kind: Mapped[str]  # mallorn.core.states.StageKind
    worker: Mapped[str]
    started_at: Mapped[CreatedAt]
    finished_at: Mapped[Timestamp | None]  # None: it goes on, or its worker died


class FinishStep(Base):
    """What a finish decided for a task, until the job is done (ADR 0034)."""

    __tablename__ = "finish_steps"
    __table_args__ = (Index("ix_finish_steps_job", "job_id"),)

    task_id: Mapped[int] = mapped_column(BigId, ForeignKey("tasks.id"), primary_key=True)
    job_id: Mapped[str] = mapped_column(ForeignKey("jobs.id"))
    trials: Mapped[int]  # that the job had when it was decided
    decided: Mapped[DecidedTask] = mapped_column(ValueType(DecidedTask))


class Event(Base):
    """What happened to a job, numbered in commit order."""

    __tablename__ = "events"

    job_id: Mapped[str] = mapped_column(ForeignKey("jobs.id"), primary_key=True)
    seq: Mapped[int] = mapped_column(primary_key=True)
    kind: Mapped[str]
    payload: Mapped[Json]
    created_at: Mapped[CreatedAt]
