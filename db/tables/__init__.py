"""The SQLAlchemy table classes, one module per topic."""

from db.tables.access_control import ApiKeyRow, AuditRow, BannedOwner, SignIn
from db.tables.base import Base
from db.tables.dataset import (
    Context,
    CostModelRow,
    FeatureRow,
    Measurement,
    MeasurementCount,
    Schedule,
    SearchState,
    SketchRow,
    TargetRow,
    Workload,
)
from db.tables.devices_workers_leases import Device, LeaseRow, Tick, Worker
from db.tables.jobs import Event, FinishStep, Job, Model, Round, StageRun, Task
from db.tables.snapshots_and_foreign_records import ForeignRecord, ForeignTask, Snapshot, SourceDataset
