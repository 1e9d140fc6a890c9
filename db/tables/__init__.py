"""The SQLAlchemy table classes, one module per topic."""

from mallorn.db.tables.access_control import ApiKeyRow, AuditRow, BannedOwner, LoginCode, SessionRow
from mallorn.db.tables.base import Base
from mallorn.db.tables.dataset import (
    Context,
    CostModelRow,
    FeatureRow,
    ForeignRecord,
    ForeignTask,
    Measurement,
    MeasurementCount,
    Schedule,
    SketchRow,
    Snapshot,
    SourceDataset,
    TargetRow,
    Workload,
)
from mallorn.db.tables.devices_workers_leases import Device, LeaseRow, Tick, Worker
from mallorn.db.tables.jobs import (
    Event,
    FinishStep,
    Job,
    JobLabel,
    LearningCurve,
    Model,
    Round,
    StageRun,
    Task,
)
