"""The performance dataset: workloads, measured candidates, schedules, and trained cost
models; snapshots, imported datasets, other tuners' logs."""

from typing import Any

from sqlalchemy import BigInteger, ForeignKey, Index, LargeBinary, SmallInteger, UniqueConstraint, true
from sqlalchemy.orm import Mapped, mapped_column

from mallorn.core.targets import NATIVE
from mallorn.core.values.manifest import MeasuredOn
from mallorn.db.tables.base import Base, BigId, CreatedAt, IdPk, Json, JsonType, partial_index


class TargetRow(Base):
    """A canonical target (mallorn.core.targets.Target)."""

    __tablename__ = "targets"

    id: Mapped[IdPk]
    key: Mapped[str] = mapped_column(unique=True)
    text: Mapped[str] = mapped_column(unique=True)
    toolchain: Mapped[str] = mapped_column(default=NATIVE, server_default=NATIVE)  # that builds for it


class Workload(Base):
    """A tensor program, identified by a platform-independent key."""

    __tablename__ = "workloads"

    id: Mapped[IdPk]
    key: Mapped[str] = mapped_column(unique=True)  # SHA-256 of its normalised text
    name: Mapped[str]
    op: Mapped[str]  # anchor operator, which defines the families of kind `operator`
    structure: Mapped[str]  # hash of the loops without sizes, which defines those of kind `structure`
    flops: Mapped[float]
    tir: Mapped[bytes] = mapped_column(LargeBinary)  # zstd of tvm.ir.save_json
    args: Mapped[Json]  # arguments: {"args": [["TENSOR", dtype, shape], ...], "ranges": {...}}
    features: Mapped[Json]  # {"extents": [...]}: numbers a cost model may share between workloads
    tvm_version: Mapped[str]
    code: Mapped[str | None]  # digest of the graph compiler that extracted it here; None: imported
    # Largest id of measurements made while only private jobs used the workload; 0: none.
    kept_upto: Mapped[int] = mapped_column(BigInteger, default=0, server_default="0")
    created_at: Mapped[CreatedAt]


class SketchRow(Base):
    """A schedule without decisions. Its trace is stored once, under the trace's hash."""

    __tablename__ = "sketches"

    id: Mapped[IdPk]
    key: Mapped[str] = mapped_column(unique=True)
    trace: Mapped[bytes] = mapped_column(LargeBinary)  # zstd of the trace's JSON
    choices: Mapped[list[Any]] = mapped_column(JsonType)  # mallorn.core.values.candidate.pack_choices
    ordinal: Mapped[int]  # its position in the design space that generated it
    space: Mapped[str]  # name and version of the space, e.g. "tvm/1"
    tvm_version: Mapped[str]
    imported: Mapped[bool] = mapped_column(server_default=true())  # until a round here proposes it


class Context(Base):
    """A measuring context. Times are comparable only within one context."""

    __tablename__ = "contexts"

    id: Mapped[IdPk]
    key: Mapped[str] = mapped_column(unique=True)  # hash of the columns below
    target_id: Mapped[int] = mapped_column(ForeignKey("targets.id"))
    host_class: Mapped[str]
    tvm_version: Mapped[str]  # of the device
    built_by: Mapped[str | None]  # name of the builder (workers/host/code_digest.py); None: not reported
    threads: Mapped[int]  # TVM_NUM_THREADS of the measuring process, as it reported it
    evaluator: Mapped[Json]  # JobOptions.timing: repeats, cache state, launches

    @property
    def builder(self) -> str:
        """The builder of the timed libraries, or the device's TVM if not reported."""
        return self.built_by or self.tvm_version

    @property
    def measured_on(self) -> MeasuredOn:
        """The facts that must be equal for two times to be comparable."""
        return MeasuredOn.model_validate(self, from_attributes=True)


class Measurement(Base):
    """The result of measuring a candidate: run times or a failure. Under 400 bytes."""

    __tablename__ = "measurements"
    __table_args__ = (
        UniqueConstraint("round_id", "slot", "kind"),
        Index("ix_measurements_best", "workload_id", "target_id", "latency_us"),
        Index("ix_measurements_job", "job_id", "id"),
        Index("ix_measurements_outcome", "job_id", "kind", "outcome"),
        # Finds a workload's newest measurements, and those after a given id.
        Index("ix_measurements_workload", "workload_id", "target_id", "id"),
        Index("ix_measurements_device", "device_id", "id"),
        # Few rows. A fast candidate is looked up among them before it counts as the best.
        partial_index(
            "ix_measurements_refuted",
            "workload_id",
            "target_id",
            "sketch_id",
            condition="outcome = 'wrong_result'",
        ),
        # Few rows: times of finish stages.
        partial_index(
            "ix_measurements_finish", "workload_id", "target_id", "latency_us", condition="kind = 'finish'"
        ),
        # Finds what tells whether a candidate was tried.
        Index("ix_measurements_candidate", "sketch_id", "decisions"),
        # Each row of another dataset is stored once. Two copies of a database may give the
        # same id to different rows: hence the date.
        partial_index(
            "uq_measurements_source",
            "source_id",
            "source_row",
            "created_at",
            condition="source_id is not null",
            unique=True,
        ),
    )

    id: Mapped[IdPk]
    job_id: Mapped[str | None] = mapped_column(ForeignKey("jobs.id"))
    round_id: Mapped[int | None] = mapped_column(ForeignKey("rounds.id"))
    slot: Mapped[int] = mapped_column(SmallInteger)  # position in the round's proposals
    kind: Mapped[str]  # mallorn.core.states.MeasurementKind
    workload_id: Mapped[int] = mapped_column(ForeignKey("workloads.id"))
    target_id: Mapped[int] = mapped_column(ForeignKey("targets.id"))
    context_id: Mapped[int | None] = mapped_column(ForeignKey("contexts.id"))  # None: never reached a device
    sketch_id: Mapped[int] = mapped_column(ForeignKey("sketches.id"))
    decisions: Mapped[bytes] = mapped_column(LargeBinary)  # mallorn.db.measurement_codec.pack_decisions
    outcome: Mapped[str]
    latency_us: Mapped[float | None]  # median of the run times; None: see bound_us
    bound_us: Mapped[float | None]  # that median if other processes used its CPUs: an upper bound
    disturbed: Mapped[float | None]  # share of its run times when they did; None: unknown
    run_us: Mapped[bytes | None] = mapped_column(LargeBinary)  # mallorn.db.measurement_codec.pack_times
    error: Mapped[str | None]
    built_by: Mapped[str | None]  # the builder that failed on it; None: it was built, or unknown
    limit_sec: Mapped[float | None]  # the job's limit for the failed step; None: no limit, or unknown
    device_id: Mapped[int | None] = mapped_column(ForeignKey("devices.id"))
    build_ms: Mapped[float | None]
    run_ms: Mapped[float | None]  # wall time on the device
    predicted: Mapped[float | None]
    origin: Mapped[str]  # the searcher that proposed it
    source_id: Mapped[int | None] = mapped_column(ForeignKey("sources.id"))  # None: measured here
    source_row: Mapped[int | None] = mapped_column(BigId)  # its id in the dataset that measured it
    created_at: Mapped[CreatedAt]


class MeasurementCount(Base):
    """Number of a job's measurements with one value (`name`) of a property (`facet`)."""

    __tablename__ = "measurement_counts"
    __table_args__ = (Index("ix_measurement_counts_upto", "upto"),)

    job_id: Mapped[str] = mapped_column(primary_key=True)  # empty: imported
    facet: Mapped[str] = mapped_column(primary_key=True)  # mallorn.db.repositories.dataset_statistics
    name: Mapped[str] = mapped_column(primary_key=True)  # the facet's value
    rows: Mapped[int] = mapped_column(BigId)
    upto: Mapped[int] = mapped_column(BigId)


class Schedule(Base):
    """A measurement that was a workload's best on a target and passed the numeric check."""

    __tablename__ = "schedules"
    __table_args__ = (Index("ix_schedules_best", "workload_id", "target_id", "latency_us"),)

    id: Mapped[IdPk]
    workload_id: Mapped[int] = mapped_column(ForeignKey("workloads.id"))
    target_id: Mapped[int] = mapped_column(ForeignKey("targets.id"))
    context_id: Mapped[int | None] = mapped_column(ForeignKey("contexts.id"))
    measurement_id: Mapped[int] = mapped_column(BigId, ForeignKey("measurements.id"), unique=True)
    job_id: Mapped[str | None] = mapped_column(ForeignKey("jobs.id"))
    latency_us: Mapped[float]  # median of the interleaved re-measurement
    low_us: Mapped[float]  # confidence interval of that median
    high_us: Mapped[float]
    max_error: Mapped[float]  # relative, compared with the unscheduled program
    trace: Mapped[bytes] = mapped_column(LargeBinary)  # zstd of the full trace's JSON
    run_us: Mapped[bytes] = mapped_column(LargeBinary)
    created_at: Mapped[CreatedAt]


class CostModelRow(Base):
    """A trained version of a model of a family and target. Rounds use the active one."""

    __tablename__ = "cost_models"
    __table_args__ = (
        UniqueConstraint("family", "target_id", "name", "version"),
        partial_index(
            "uq_cost_models_active", "family", "target_id", "name", condition="active", unique=True
        ),
    )

    id: Mapped[IdPk]
    family: Mapped[str]
    target_id: Mapped[int] = mapped_column(ForeignKey("targets.id"))
    name: Mapped[str]
    version: Mapped[int]
    parent_id: Mapped[int | None] = mapped_column(ForeignKey("cost_models.id"))
    active: Mapped[bool]
    snapshot: Mapped[str | None]  # its training rows; None: those of its family up to seen_upto
    seen_upto: Mapped[int] = mapped_column(BigId)  # the newest measurement it was trained on
    rows: Mapped[int]
    metrics: Mapped[Json]
    blob: Mapped[bytes] = mapped_column(LargeBinary)
    created_at: Mapped[CreatedAt]


class FeatureRow(Base):
    """A candidate's features in a view that needs a compiler: a cache, deleted any time."""

    __tablename__ = "feature_rows"

    workload_id: Mapped[int] = mapped_column(BigId, ForeignKey("workloads.id"), primary_key=True)
    target_id: Mapped[int] = mapped_column(BigId, ForeignKey("targets.id"), primary_key=True)
    view: Mapped[str] = mapped_column(primary_key=True)  # its name, e.g. "statements"
    version: Mapped[int] = mapped_column(SmallInteger, primary_key=True)  # of the view
    tvm_version: Mapped[str] = mapped_column(primary_key=True)  # as `current_code_name` says
    candidate: Mapped[str] = mapped_column(primary_key=True)  # mallorn.searchers.space.Candidate.key
    numbers: Mapped[bytes | None] = mapped_column(LargeBinary)  # zstd of float32; None: cannot be lowered


class SourceDataset(Base):
    """A Mallorn dataset: this one (`own`), or one from which rows were imported."""

    __tablename__ = "sources"
    __table_args__ = (
        # Exactly one row is this dataset.
        partial_index("uq_sources_own", "own", condition="own", unique=True),
    )

    id: Mapped[IdPk]
    key: Mapped[str] = mapped_column(unique=True)  # a UUID, hex
    own: Mapped[bool]


class Snapshot(Base):
    """An immutable set of measurements: ids up to `upto` that `filter` selects."""

    __tablename__ = "snapshots"

    id: Mapped[IdPk]
    name: Mapped[str] = mapped_column(unique=True)
    upto: Mapped[int] = mapped_column(BigId)  # id of the newest measurement that it may hold
    filter: Mapped[Json]  # mallorn.db.repositories.snapshots.Selection
    rows: Mapped[int] = mapped_column(BigId)
    digest: Mapped[str]  # of the rows in order, equal in every dataset that holds them
    created_at: Mapped[CreatedAt]


class ForeignTask(Base):
    """A tensor program as another tuner's log names it. Mallorn cannot build it."""

    __tablename__ = "foreign_tasks"

    id: Mapped[IdPk]
    key: Mapped[str] = mapped_column(unique=True)  # hash of format, task and target
    format: Mapped[str]  # `metaschedule` or `tenset`
    task: Mapped[str]  # the log's own key
    target: Mapped[str]  # as the log writes it


class ForeignRecord(Base):
    """A measurement from another tuner's log. It never becomes a schedule."""

    __tablename__ = "foreign_records"
    __table_args__ = (Index("ix_foreign_records_task", "task_id", "id"),)

    id: Mapped[IdPk]
    key: Mapped[bytes] = mapped_column(LargeBinary, unique=True)  # 16 bytes: hash of the whole record
    task_id: Mapped[int] = mapped_column(ForeignKey("foreign_tasks.id"))
    steps: Mapped[bytes] = mapped_column(LargeBinary)  # zstd of the candidate's steps as JSON
    outcome: Mapped[str]  # mallorn.core.outcomes.Outcome
    failure: Mapped[str | None]  # the log's failure code
    latency_us: Mapped[float | None]  # median of the run times
    run_us: Mapped[bytes | None] = mapped_column(LargeBinary)  # mallorn.db.measurement_codec.pack_times
    measured_at: Mapped[float | None]  # None: not in the log
    created_at: Mapped[CreatedAt]  # when it was imported
