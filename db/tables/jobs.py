"""Models, jobs, and the tasks, rounds, steps and events of a job."""

from sqlalchemy import ForeignKey, Index, LargeBinary, UniqueConstraint, false, true
from sqlalchemy.orm import Mapped, mapped_column

from mallorn.core.states import WRITE, Cause, JobState, RoundState
from mallorn.core.values.decision_log import RoundNotes, RoundStats
from mallorn.core.values.finish_report import FinishReport
from mallorn.core.values.graph_report import GraphReport
from mallorn.core.values.job import JobStep, JobWarning, SuggestedOptions
from mallorn.core.values.learning_curve import ClosedRounds
from mallorn.core.values.machine import Machine
from mallorn.core.values.trial import DecidedTask, Proposal
from mallorn.db.tables.base import Base, BigId, CreatedAt, IdPk, Json, Timestamp, ValueType, partial_index


class Model(Base):
    """An uploaded network, by the SHA-256 of its bytes, which the artifact store holds."""

    __tablename__ = "models"

    id: Mapped[str] = mapped_column(primary_key=True)  # SHA-256, hex
    owner: Mapped[str] = mapped_column(primary_key=True)
    name: Mapped[str]
    size_bytes: Mapped[int] = mapped_column(BigId)
    created_at: Mapped[CreatedAt]


class Job(Base):
    """A tuning job of an owner: a model, a target, a budget and options."""

    __tablename__ = "jobs"
    __table_args__ = (
        UniqueConstraint("owner", "idempotency_key"),
        Index("ix_jobs_owner_created", "owner", "created_at"),
        Index("ix_jobs_state", "state"),
        Index("ix_jobs_finished", "finished_at"),
        Index("ix_jobs_created", "created_at"),
        Index("ix_jobs_model", "model_id"),
        # Few rows: jobs whose files must still be deleted.
        partial_index(
            "ix_jobs_leftovers", "deleted_at", condition="deleted_at is not null and export_uri is not null"
        ),
        partial_index(
            "ix_jobs_unmeasured", "deleted_at", condition="deleted_at is not null and context_id is null"
        ),
        partial_index(
            "ix_jobs_dropped_exports",
            "export_deleted_at",
            condition="export_deleted_at is not null and export_uri is not null",
        ),
        # Few rows: jobs whose measurements no other job uses.
        partial_index("ix_jobs_withheld", "id", condition=f"dataset <> '{WRITE}'"),
    )

    id: Mapped[str] = mapped_column(primary_key=True)
    owner: Mapped[str]
    name: Mapped[str]
    model_id: Mapped[str]
    target_id: Mapped[int] = mapped_column(ForeignKey("targets.id"))
    context_id: Mapped[int | None] = mapped_column(ForeignKey("contexts.id"))  # of all its times
    machine: Mapped[Machine | None] = mapped_column(ValueType(Machine))  # fixed before its first round
    # The budget, including what resumes added. The job is `auto` without trials and minutes.
    trials: Mapped[int | None]
    minutes: Mapped[float | None]
    seed: Mapped[int]
    priority: Mapped[int] = mapped_column(default=0)
    # Pass values of stride scheduling (mallorn.services.planner.fair_share); None: no turn yet.
    share_pass: Mapped[float | None]  # of the job among its owner's jobs
    owner_pass: Mapped[float | None]  # of its owner among all owners, at this job's last turn
    planned_at: Mapped[Timestamp | None]  # when the planner last looked at the job
    # Whether its last turn opened all rounds that it might: it may open more.
    wants_rounds: Mapped[bool] = mapped_column(default=True, server_default=true())
    options: Mapped[Json]  # mallorn.core.job_options.JobOptions
    private: Mapped[bool] = mapped_column(default=False, server_default=false())  # as in options
    dataset: Mapped[str] = mapped_column(default=WRITE, server_default=WRITE)  # as in options
    state: Mapped[str] = mapped_column(default=JobState.QUEUED)
    resume_state: Mapped[str | None]  # state from which a paused or failed job resumes
    # Why the job does not go on, or why it ended, and what its owner can type, as text; or empty.
    waiting_because: Mapped[str] = mapped_column(default="", server_default="")
    ended_because: Mapped[str] = mapped_column(default="", server_default="")
    hint: Mapped[str] = mapped_column(default="", server_default="")
    step: Mapped[JobStep | None] = mapped_column(ValueType(JobStep))  # what a worker does now
    cause: Mapped[str] = mapped_column(default=Cause.OTHER, server_default=Cause.OTHER)  # why it waits
    suggest: Mapped[SuggestedOptions | None] = mapped_column(ValueType(SuggestedOptions))  # if it failed
    tuning_ended: Mapped[str] = mapped_column(default="", server_default="")  # why, as text; or empty
    warnings: Mapped[list[JobWarning]] = mapped_column(
        ValueType(list[JobWarning]), default=list, server_default="[]"
    )
    graph: Mapped[GraphReport | None] = mapped_column(ValueType(GraphReport))
    report: Mapped[FinishReport | None] = mapped_column(ValueType(FinishReport))
    export_uri: Mapped[str | None]
    export_deleted_at: Mapped[Timestamp | None]  # its files are deleted, or will be by the next cleanup
    idempotency_key: Mapped[str | None]
    request_hash: Mapped[str | None]
    # Whether its finish only times the exported schedules again.
    is_bench: Mapped[bool] = mapped_column(default=False, server_default=false())
    event_count: Mapped[int] = mapped_column(default=0)  # the last event's seq; its row lock orders events
    created_at: Mapped[CreatedAt]
    started_at: Mapped[Timestamp | None]
    finished_at: Mapped[Timestamp | None]
    archived_at: Mapped[Timestamp | None]  # its owner hid it from lists; otherwise unchanged
    deleted_at: Mapped[Timestamp | None]  # hidden from all (ADR 0013); its rows still train models

    @property
    def has_auto_budget(self) -> bool:
        """Whether the job has no budget and tunes as long as that is worthwhile."""
        return self.trials is None and self.minutes is None


class JobLabel(Base):
    """A label that an owner gave a job: a key, with a value that may be empty."""

    __tablename__ = "job_labels"
    __table_args__ = (Index("ix_job_labels_key", "key", "value", "job_id"),)

    job_id: Mapped[str] = mapped_column(ForeignKey("jobs.id"), primary_key=True)
    key: Mapped[str] = mapped_column(primary_key=True)
    value: Mapped[str]


class Task(Base):
    """A workload of a job; `weight` is how often the model calls it."""

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
    family: Mapped[str] = mapped_column(default="")  # set by the planner's grouping when tuning starts
    family_why: Mapped[str] = mapped_column(default="")  # why, as text
    family_since: Mapped[int] = mapped_column(BigId, default=0)  # only later rounds count in its test
    known_at_start: Mapped[int] = mapped_column(default=0)  # measurements that existed before this job
    retired: Mapped[str] = mapped_column(default="")  # why no more rounds are planned, as text
    # Totals of its settled rounds; None: to be computed from all its rounds.
    closed: Mapped[ClosedRounds | None] = mapped_column(ValueType(ClosedRounds))


class Round(Base):
    """Candidates of one task, planned by the bandit and leased by one worker.

    Its proposals follow from `seed`, `cost_model_id`, the workload's measurements up to
    `seen_upto` and the proposals of other open rounds. Retries read them. LeaseRow names
    the round's holder; results of an older attempt are rejected.
    """

    __tablename__ = "rounds"
    __table_args__ = (
        UniqueConstraint("job_id", "index"),
        Index("ix_rounds_state", "state"),
        Index("ix_rounds_finished", "finished_at"),
        Index("ix_rounds_job_finished", "job_id", "finished_at"),
        Index("ix_rounds_target_finished", "target_id", "finished_at"),
        Index("ix_rounds_workload", "workload_id", "target_id", "state"),
        # Few rows: open rounds, and those that closed since a plan read them.
        partial_index("ix_rounds_unsettled", "workload_id", "target_id", condition="not settled"),
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
    seen_upto: Mapped[int] = mapped_column(BigId)  # id of the newest measurement at its first claim
    detached: Mapped[bool] = mapped_column(default=False, server_default=false())  # as its job
    reason: Mapped[RoundNotes] = mapped_column(ValueType(RoundNotes))  # why the policy chose the task
    state: Mapped[str] = mapped_column(default=RoundState.QUEUED)
    worker: Mapped[str | None]  # the worker that last started it
    error: Mapped[str] = mapped_column(default="")
    created_at: Mapped[CreatedAt]
    started_at: Mapped[Timestamp | None]
    finished_at: Mapped[Timestamp | None]
    stats: Mapped[RoundStats | None] = mapped_column(ValueType(RoundStats))
    # By slot, while it is open; SQL NULL before they are known.
    proposals: Mapped[list[Proposal] | None] = mapped_column(ValueType(list[Proposal]))
    # Whether its results are in its task's `closed` and its workload's curve, if stored.
    settled: Mapped[bool] = mapped_column(default=False, server_default=false())


class LearningCurve(Base):
    """The settled rounds of a workload in a measuring context, in closing order, for plans.

    `scope` is empty for rounds of jobs that write to the dataset, otherwise the id of the
    only job whose rounds it holds. A row can be deleted any time: it is computed again.
    """

    __tablename__ = "learning_curves"

    workload_id: Mapped[int] = mapped_column(BigId, ForeignKey("workloads.id"), primary_key=True)
    target_id: Mapped[int] = mapped_column(BigId, ForeignKey("targets.id"), primary_key=True)
    context_id: Mapped[int] = mapped_column(BigId, primary_key=True)  # 0: its jobs have none yet
    scope: Mapped[str] = mapped_column(primary_key=True)
    points: Mapped[bytes] = mapped_column(LargeBinary)  # mallorn.db.measurement_codec.pack_points
    timed_trials: Mapped[int] = mapped_column(BigId)  # of done rounds, with the seconds that these took
    timed_sec: Mapped[float]


class StageRun(Base):
    """A time span in which a worker ran something other than a round, for the timeline."""

    __tablename__ = "stage_runs"
    __table_args__ = (Index("ix_stage_runs_started", "started_at"),)

    id: Mapped[IdPk]
    job_id: Mapped[str] = mapped_column(ForeignKey("jobs.id"))
    kind: Mapped[str]  # mallorn.core.states.StageKind
    worker: Mapped[str]
    started_at: Mapped[CreatedAt]
    finished_at: Mapped[Timestamp | None]  # None: still running, or its worker died


class FinishStep(Base):
    """The decision of the finish stage for a task, kept until the job is done (ADR 0034)."""

    __tablename__ = "finish_steps"
    __table_args__ = (Index("ix_finish_steps_job", "job_id"),)

    task_id: Mapped[int] = mapped_column(BigId, ForeignKey("tasks.id"), primary_key=True)
    job_id: Mapped[str] = mapped_column(ForeignKey("jobs.id"))
    trials: Mapped[int]  # the job's trials at the time of the decision
    decided: Mapped[DecidedTask] = mapped_column(ValueType(DecidedTask))


class Event(Base):
    """An event of a job, numbered in commit order."""

    __tablename__ = "events"

    job_id: Mapped[str] = mapped_column(ForeignKey("jobs.id"), primary_key=True)
    seq: Mapped[int] = mapped_column(primary_key=True)
    kind: Mapped[str]
    payload: Mapped[Json]
    created_at: Mapped[CreatedAt]
