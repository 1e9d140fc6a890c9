"""The SQLAlchemy table classes, one module per topic."""

from db.tables.access_control import ApiKeyRow, AuditRow, PutOut, SignIn
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
from db.tables.exchange import ForeignRecord, ForeignTask, Snapshot, SourceDataset
from db.tables.fleet import Device, LeaseRow, Tick, Worker
from db.tables.jobs import Event, FinishStep, Job, Model, Round, StageRun, Task
