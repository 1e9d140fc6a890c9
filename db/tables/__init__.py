"""The typed tables, one file a group of words."""

from db.tables.access_control import ApiKeyRow, AuditRow, PutOut, SignIn
from db.tables.base import Base
from db.tables.dataset import (
    Context,
    CostModelRow,
    Measurement,
    MeasurementCount,
    Schedule,
    SketchRow,
    TargetRow,
    Workload,
)
from db.tables.exchange import ForeignRecord, ForeignTask, Snapshot, SourceDataset
from db.tables.feature_cache_and_search_states import FeatureRow, SearchState
from db.tables.fleet import Device, LeaseRow, Tick, Worker
from db.tables.jobs import Event, FinishStep, Job, Model, Round, StageRun, Task
