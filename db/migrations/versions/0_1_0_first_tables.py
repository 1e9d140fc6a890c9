"""The tables of 0.1.0"""

from collections.abc import Sequence

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

from mallorn.db.database_clock import now

revision: str = "0.1.0"
down_revision: str | None = None
branch_labels: str | Sequence[str] | None = None
depends_on: str | Sequence[str] | None = None

BIG_ID = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
JSON = sa.JSON().with_variant(postgresql.JSONB(), "postgresql")
IN_FLIGHT = sa.text("state in ('queued', 'leased')")
REFUTED = sa.text("outcome = 'wrong_result'")
FROM_ELSEWHERE = sa.text("source_id is not null")
HELD = sa.text("until is not null")
WAITING = sa.text("until is null and sent_at is not null")
TO_REMOVE = sa.text("deleted_at is not null and export_uri is not null")
OWN = sa.text("own")
ACTIVE = sa.text("active")


def upgrade() -> None:
    _foreign_tasks()
    _models()
    _sketches()
    _snapshots()
    _sources()
    _targets()
    _workers()
    _workloads()
    _contexts()
    _cost_models()
    _devices()
    _feature_rows()
    _foreign_records()
    _jobs()
    _events()
    _held_work()
    _stage_runs()
    _tasks()
    _rounds()
    _measurements()
    _schedules()


def downgrade() -> None:
    raise NotImplementedError("restore a backup: migrations here only go forward")


def _foreign_tasks() -> None:
    op.create_table(
        "foreign_tasks",
        sa.Column("id", BIG_ID, autoincrement=True, nullable=False),
        sa.Column("key", sa.String(), nullable=False),
        sa.Column("format", sa.String(), nullable=False),
        sa.Column("task", sa.String(), nullable=False),
        sa.Column("target", sa.String(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_foreign_tasks"),
        sa.UniqueConstraint("key", name="uq_foreign_tasks_key"),
    )


def _models() -> None:
    op.create_table(
        "models",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("owner", sa.String(), nullable=False),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("size_bytes", BIG_ID, nullable=False),
        sa.Column("created_at", sa.Float(53), server_default=now(), nullable=False),
        sa.PrimaryKeyConstraint("id", "owner", name="pk_models"),
    )


def _sketches() -> None:
    op.create_table(
        "sketches",
        sa.Column("id", BIG_ID, autoincrement=True, nullable=False),
        sa.Column("key", sa.String(), nullable=False),
        sa.Column("trace", sa.LargeBinary(), nullable=False),
        sa.Column("choices", JSON, nullable=False),
        sa.Column("ordinal", sa.Integer(), nullable=False),
        sa.Column("space", sa.String(), nullable=False),
        sa.Column("tvm_version", sa.String(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_sketches"),
        sa.UniqueConstraint("key", name="uq_sketches_key"),
    )


def _snapshots() -> None:
    op.create_table(
        "snapshots",
        sa.Column("id", BIG_ID, autoincrement=True, nullable=False),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("upto", BIG_ID, nullable=False),
        sa.Column("filter", JSON, nullable=False),
        sa.Column("rows", BIG_ID, nullable=False),
        sa.Column("digest", sa.String(), nullable=False),
        sa.Column("created_at", sa.Float(53), server_default=now(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_snapshots"),
        sa.UniqueConstraint("name", name="uq_snapshots_name"),
    )


def _sources() -> None:
    op.create_table(
        "sources",
        sa.Column("id", BIG_ID, autoincrement=True, nullable=False),
        sa.Column("key", sa.String(), nullable=False),
        sa.Column("own", sa.Boolean(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_sources"),
        sa.UniqueConstraint("key", name="uq_sources_key"),
    )
    op.create_index(
        "uq_sources_own",
        "sources",
        ["own"],
        unique=True,
        sqlite_where=OWN,
        postgresql_where=OWN,
    )


def _targets() -> None:
    op.create_table(
        "targets",
        sa.Column("id", BIG_ID, autoincrement=True, nullable=False),
        sa.Column("key", sa.String(), nullable=False),
        sa.Column("text", sa.String(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_targets"),
        sa.UniqueConstraint("key", name="uq_targets_key"),
        sa.UniqueConstraint("text", name="uq_targets_text"),
    )


def _workers() -> None:
    op.create_table(
        "workers",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("host_id", sa.String(), nullable=False),
        sa.Column("info", JSON, nullable=False),
        sa.Column("busy_with", sa.String(), nullable=False),
        sa.Column("started_at", sa.Float(53), nullable=False),
        sa.Column("last_seen", sa.Float(53), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_workers"),
    )


def _workloads() -> None:
    op.create_table(
        "workloads",
        sa.Column("id", BIG_ID, autoincrement=True, nullable=False),
        sa.Column("key", sa.String(), nullable=False),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("op", sa.String(), nullable=False),
        sa.Column("structure", sa.String(), nullable=False),
        sa.Column("flops", sa.Double(), nullable=False),
        sa.Column("tir", sa.LargeBinary(), nullable=False),
        sa.Column("args", JSON, nullable=False),
        sa.Column("features", JSON, nullable=False),
        sa.Column("tvm_version", sa.String(), nullable=False),
        sa.Column("created_at", sa.Float(53), server_default=now(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_workloads"),
        sa.UniqueConstraint("key", name="uq_workloads_key"),
    )


def _contexts() -> None:
    op.create_table(
        "contexts",
        sa.Column("id", BIG_ID, autoincrement=True, nullable=False),
        sa.Column("key", sa.String(), nullable=False),
        sa.Column("target_id", BIG_ID, nullable=False),
        sa.Column("host_class", sa.String(), nullable=False),
        sa.Column("tvm_version", sa.String(), nullable=False),
        sa.Column("threads", sa.Integer(), nullable=False),
        sa.Column("evaluator", JSON, nullable=False),
        sa.ForeignKeyConstraint(["target_id"], ["targets.id"], name="fk_contexts_target_id"),
        sa.PrimaryKeyConstraint("id", name="pk_contexts"),
        sa.UniqueConstraint("key", name="uq_contexts_key"),
    )


def _cost_models() -> None:
    op.create_table(
        "cost_models",
        sa.Column("id", BIG_ID, autoincrement=True, nullable=False),
        sa.Column("family", sa.String(), nullable=False),
        sa.Column("target_id", BIG_ID, nullable=False),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("parent_id", BIG_ID, nullable=True),
        sa.Column("active", sa.Boolean(), nullable=False),
        sa.Column("snapshot", sa.String(), nullable=True),
        sa.Column("seen_upto", BIG_ID, nullable=False),
        sa.Column("rows", sa.Integer(), nullable=False),
        sa.Column("metrics", JSON, nullable=False),
        sa.Column("blob", sa.LargeBinary(), nullable=False),
        sa.Column("created_at", sa.Float(53), server_default=now(), nullable=False),
        sa.ForeignKeyConstraint(["parent_id"], ["cost_models.id"], name="fk_cost_models_parent_id"),
        sa.ForeignKeyConstraint(["target_id"], ["targets.id"], name="fk_cost_models_target_id"),
        sa.PrimaryKeyConstraint("id", name="pk_cost_models"),
        sa.UniqueConstraint(
            "family", "target_id", "name", "version", name="uq_cost_models_family_target_id_name_version"
        ),
    )
    op.create_index(
        "uq_cost_models_active",
        "cost_models",
        ["family", "target_id", "name"],
        unique=True,
        sqlite_where=ACTIVE,
        postgresql_where=ACTIVE,
    )


def _devices() -> None:
    op.create_table(
        "devices",
        sa.Column("id", BIG_ID, autoincrement=True, nullable=False),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("target_id", BIG_ID, nullable=False),
        sa.Column("host_id", sa.String(), nullable=False),
        sa.Column("host_class", sa.String(), nullable=False),
        sa.Column("threads", sa.Integer(), nullable=False),
        sa.Column("tvm_version", sa.String(), nullable=False),
        sa.Column("info", JSON, nullable=False),
        sa.Column("last_seen", sa.Float(53), nullable=False),
        sa.ForeignKeyConstraint(["target_id"], ["targets.id"], name="fk_devices_target_id"),
        sa.PrimaryKeyConstraint("id", name="pk_devices"),
        sa.UniqueConstraint("name", name="uq_devices_name"),
    )


def _feature_rows() -> None:
    op.create_table(
        "feature_rows",
        sa.Column("workload_id", BIG_ID, nullable=False),
        sa.Column("target_id", BIG_ID, nullable=False),
        sa.Column("view", sa.String(), nullable=False),
        sa.Column("version", sa.SmallInteger(), nullable=False),
        sa.Column("tvm_version", sa.String(), nullable=False),
        sa.Column("candidate", sa.String(), nullable=False),
        sa.Column("numbers", sa.LargeBinary(), nullable=True),
        sa.ForeignKeyConstraint(["target_id"], ["targets.id"], name="fk_feature_rows_target_id"),
        sa.ForeignKeyConstraint(["workload_id"], ["workloads.id"], name="fk_feature_rows_workload_id"),
        sa.PrimaryKeyConstraint(
            "workload_id", "target_id", "view", "version", "tvm_version", "candidate", name="pk_feature_rows"
        ),
    )


def _foreign_records() -> None:
    op.create_table(
        "foreign_records",
        sa.Column("id", BIG_ID, autoincrement=True, nullable=False),
        sa.Column("key", sa.LargeBinary(), nullable=False),
        sa.Column("task_id", BIG_ID, nullable=False),
        sa.Column("steps", sa.LargeBinary(), nullable=False),
        sa.Column("outcome", sa.String(), nullable=False),
        sa.Column("failure", sa.String(), nullable=True),
        sa.Column("latency_us", sa.Double(), nullable=True),
        sa.Column("run_us", sa.LargeBinary(), nullable=True),
        sa.Column("measured_at", sa.Double(), nullable=True),
        sa.Column("created_at", sa.Float(53), server_default=now(), nullable=False),
        sa.ForeignKeyConstraint(["task_id"], ["foreign_tasks.id"], name="fk_foreign_records_task_id"),
        sa.PrimaryKeyConstraint("id", name="pk_foreign_records"),
        sa.UniqueConstraint("key", name="uq_foreign_records_key"),
    )
    op.create_index("ix_foreign_records_task", "foreign_records", ["task_id", "id"])


def _jobs() -> None:
    op.create_table(
        "jobs",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("owner", sa.String(), nullable=False),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("model_id", sa.String(), nullable=False),
        sa.Column("target_id", BIG_ID, nullable=False),
        sa.Column("context_id", BIG_ID, nullable=True),
        sa.Column("trials", sa.Integer(), nullable=True),
        sa.Column("minutes", sa.Double(), nullable=True),
        sa.Column("seed", sa.Integer(), nullable=False),
        sa.Column("priority", sa.Integer(), nullable=False),
        sa.Column("share_pass", sa.Double(), nullable=True),
        sa.Column("owner_pass", sa.Double(), nullable=True),
        sa.Column("planned_at", sa.Float(53), nullable=True),
        sa.Column("options", JSON, nullable=False),
        sa.Column("state", sa.String(), nullable=False),
        sa.Column("resume_state", sa.String(), nullable=True),
        sa.Column("reason", sa.String(), nullable=False),
        sa.Column("cause", sa.String(), server_default="other", nullable=False),
        sa.Column("cause_detail", sa.String(), server_default="", nullable=False),
        sa.Column("suggest", JSON, nullable=True),
        sa.Column("tuning_ended", sa.String(), server_default="", nullable=False),
        sa.Column("warnings", JSON, server_default="[]", nullable=False),
        sa.Column("graph", JSON, nullable=True),
        sa.Column("report", JSON, nullable=True),
        sa.Column("export_uri", sa.String(), nullable=True),
        sa.Column("idempotency_key", sa.String(), nullable=True),
        sa.Column("request_hash", sa.String(), nullable=True),
        sa.Column("event_count", sa.Integer(), nullable=False),
        sa.Column("created_at", sa.Float(53), server_default=now(), nullable=False),
        sa.Column("started_at", sa.Float(53), nullable=True),
        sa.Column("finished_at", sa.Float(53), nullable=True),
        sa.Column("archived_at", sa.Float(53), nullable=True),
        sa.Column("deleted_at", sa.Float(53), nullable=True),
        sa.ForeignKeyConstraint(["context_id"], ["contexts.id"], name="fk_jobs_context_id"),
        sa.ForeignKeyConstraint(["target_id"], ["targets.id"], name="fk_jobs_target_id"),
        sa.PrimaryKeyConstraint("id", name="pk_jobs"),
        sa.UniqueConstraint("owner", "idempotency_key", name="uq_jobs_owner_idempotency_key"),
    )
    op.create_index("ix_jobs_finished", "jobs", ["finished_at"])
    op.create_index(
        "ix_jobs_leftovers",
        "jobs",
        ["deleted_at"],
        sqlite_where=TO_REMOVE,
        postgresql_where=TO_REMOVE,
    )
    op.create_index("ix_jobs_owner_created", "jobs", ["owner", "created_at"])
    op.create_index("ix_jobs_state", "jobs", ["state"])


def _events() -> None:
    op.create_table(
        "events",
        sa.Column("job_id", sa.String(), nullable=False),
        sa.Column("seq", sa.Integer(), nullable=False),
        sa.Column("kind", sa.String(), nullable=False),
        sa.Column("payload", JSON, nullable=False),
        sa.Column("created_at", sa.Float(53), server_default=now(), nullable=False),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"], name="fk_events_job_id"),
        sa.PrimaryKeyConstraint("job_id", "seq", name="pk_events"),
    )


def _held_work() -> None:
    op.create_table(
        "held_work",
        sa.Column("kind", sa.String(), nullable=False),
        sa.Column("subject", sa.String(), nullable=False),
        sa.Column("job_id", sa.String(), nullable=True),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("losses", sa.Integer(), nullable=False),
        sa.Column("holder", sa.String(), nullable=True),
        sa.Column("until", sa.Float(53), nullable=True),
        sa.Column("sent_at", sa.Float(53), nullable=True),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"], name="fk_held_work_job_id"),
        sa.PrimaryKeyConstraint("kind", "subject", name="pk_held_work"),
    )
    op.create_index(
        "ix_held_work_until",
        "held_work",
        ["until"],
        sqlite_where=HELD,
        postgresql_where=HELD,
    )
    op.create_index(
        "ix_held_work_waiting",
        "held_work",
        ["sent_at"],
        sqlite_where=WAITING,
        postgresql_where=WAITING,
    )


def _stage_runs() -> None:
    op.create_table(
        "stage_runs",
        sa.Column("id", BIG_ID, autoincrement=True, nullable=False),
        sa.Column("job_id", sa.String(), nullable=False),
        sa.Column("kind", sa.String(), nullable=False),
        sa.Column("worker", sa.String(), nullable=False),
        sa.Column("started_at", sa.Float(53), server_default=now(), nullable=False),
        sa.Column("finished_at", sa.Float(53), nullable=True),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"], name="fk_stage_runs_job_id"),
        sa.PrimaryKeyConstraint("id", name="pk_stage_runs"),
    )
    op.create_index("ix_stage_runs_started", "stage_runs", ["started_at"])


def _tasks() -> None:
    op.create_table(
        "tasks",
        sa.Column("id", BIG_ID, autoincrement=True, nullable=False),
        sa.Column("job_id", sa.String(), nullable=False),
        sa.Column("index", sa.Integer(), nullable=False),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("weight", sa.Integer(), nullable=False),
        sa.Column("workload_id", BIG_ID, nullable=False),
        sa.Column("family", sa.String(), nullable=False),
        sa.Column("family_why", sa.String(), nullable=False),
        sa.Column("family_since", BIG_ID, nullable=False),
        sa.Column("known_at_start", sa.Integer(), nullable=False),
        sa.Column("retired", sa.String(), nullable=False),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"], name="fk_tasks_job_id"),
        sa.ForeignKeyConstraint(["workload_id"], ["workloads.id"], name="fk_tasks_workload_id"),
        sa.PrimaryKeyConstraint("id", name="pk_tasks"),
        sa.UniqueConstraint("job_id", "index", name="uq_tasks_job_id_index"),
    )
    op.create_index("ix_tasks_family", "tasks", ["family", "workload_id"])
    op.create_index("ix_tasks_workload", "tasks", ["workload_id"])


def _rounds() -> None:
    op.create_table(
        "rounds",
        sa.Column("id", BIG_ID, autoincrement=True, nullable=False),
        sa.Column("job_id", sa.String(), nullable=False),
        sa.Column("task_id", BIG_ID, nullable=False),
        sa.Column("workload_id", BIG_ID, nullable=False),
        sa.Column("target_id", BIG_ID, nullable=False),
        sa.Column("index", sa.Integer(), nullable=False),
        sa.Column("size", sa.Integer(), nullable=False),
        sa.Column("seed", sa.Integer(), nullable=False),
        sa.Column("searcher", sa.String(), nullable=False),
        sa.Column("cost_model_id", BIG_ID, nullable=True),
        sa.Column("seen_upto", BIG_ID, nullable=False),
        sa.Column("reason", JSON, nullable=False),
        sa.Column("state", sa.String(), nullable=False),
        sa.Column("worker", sa.String(), nullable=True),
        sa.Column("error", sa.String(), nullable=False),
        sa.Column("created_at", sa.Float(53), server_default=now(), nullable=False),
        sa.Column("started_at", sa.Float(53), nullable=True),
        sa.Column("finished_at", sa.Float(53), nullable=True),
        sa.Column("stats", JSON, nullable=True),
        sa.ForeignKeyConstraint(["cost_model_id"], ["cost_models.id"], name="fk_rounds_cost_model_id"),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"], name="fk_rounds_job_id"),
        sa.ForeignKeyConstraint(["target_id"], ["targets.id"], name="fk_rounds_target_id"),
        sa.ForeignKeyConstraint(["task_id"], ["tasks.id"], name="fk_rounds_task_id"),
        sa.ForeignKeyConstraint(["workload_id"], ["workloads.id"], name="fk_rounds_workload_id"),
        sa.PrimaryKeyConstraint("id", name="pk_rounds"),
        sa.UniqueConstraint("job_id", "index", name="uq_rounds_job_id_index"),
    )
    op.create_index("ix_rounds_state", "rounds", ["state"])
    op.create_index("ix_rounds_workload", "rounds", ["workload_id", "target_id", "state"])
    op.create_index(
        "uq_rounds_in_flight",
        "rounds",
        ["workload_id", "target_id"],
        unique=True,
        sqlite_where=IN_FLIGHT,
        postgresql_where=IN_FLIGHT,
    )


def _measurements() -> None:
    op.create_table(
        "measurements",
        sa.Column("id", BIG_ID, autoincrement=True, nullable=False),
        sa.Column("job_id", sa.String(), nullable=True),
        sa.Column("round_id", BIG_ID, nullable=True),
        sa.Column("slot", sa.SmallInteger(), nullable=False),
        sa.Column("kind", sa.String(), nullable=False),
        sa.Column("workload_id", BIG_ID, nullable=False),
        sa.Column("target_id", BIG_ID, nullable=False),
        sa.Column("context_id", BIG_ID, nullable=True),
        sa.Column("sketch_id", BIG_ID, nullable=False),
        sa.Column("decisions", sa.LargeBinary(), nullable=False),
        sa.Column("outcome", sa.String(), nullable=False),
        sa.Column("latency_us", sa.Double(), nullable=True),
        sa.Column("run_us", sa.LargeBinary(), nullable=True),
        sa.Column("error", sa.String(), nullable=True),
        sa.Column("device_id", BIG_ID, nullable=True),
        sa.Column("build_ms", sa.Double(), nullable=True),
        sa.Column("run_ms", sa.Double(), nullable=True),
        sa.Column("predicted", sa.Double(), nullable=True),
        sa.Column("origin", sa.String(), nullable=False),
        sa.Column("source_id", BIG_ID, nullable=True),
        sa.Column("source_row", BIG_ID, nullable=True),
        sa.Column("created_at", sa.Float(53), server_default=now(), nullable=False),
        sa.ForeignKeyConstraint(["context_id"], ["contexts.id"], name="fk_measurements_context_id"),
        sa.ForeignKeyConstraint(["device_id"], ["devices.id"], name="fk_measurements_device_id"),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"], name="fk_measurements_job_id"),
        sa.ForeignKeyConstraint(["round_id"], ["rounds.id"], name="fk_measurements_round_id"),
        sa.ForeignKeyConstraint(["sketch_id"], ["sketches.id"], name="fk_measurements_sketch_id"),
        sa.ForeignKeyConstraint(["source_id"], ["sources.id"], name="fk_measurements_source_id"),
        sa.ForeignKeyConstraint(["target_id"], ["targets.id"], name="fk_measurements_target_id"),
        sa.ForeignKeyConstraint(["workload_id"], ["workloads.id"], name="fk_measurements_workload_id"),
        sa.PrimaryKeyConstraint("id", name="pk_measurements"),
        sa.UniqueConstraint("round_id", "slot", "kind", name="uq_measurements_round_id_slot_kind"),
    )
    op.create_index("ix_measurements_best", "measurements", ["workload_id", "target_id", "latency_us"])
    op.create_index("ix_measurements_job", "measurements", ["job_id", "id"])
    op.create_index("ix_measurements_outcome", "measurements", ["job_id", "kind", "outcome"])
    op.create_index(
        "ix_measurements_refuted",
        "measurements",
        ["workload_id", "target_id", "sketch_id"],
        sqlite_where=REFUTED,
        postgresql_where=REFUTED,
    )
    op.create_index(
        "uq_measurements_source",
        "measurements",
        ["source_id", "source_row", "created_at"],
        unique=True,
        sqlite_where=FROM_ELSEWHERE,
        postgresql_where=FROM_ELSEWHERE,
    )


def _schedules() -> None:
    op.create_table(
        "schedules",
        sa.Column("id", BIG_ID, autoincrement=True, nullable=False),
        sa.Column("workload_id", BIG_ID, nullable=False),
        sa.Column("target_id", BIG_ID, nullable=False),
        sa.Column("context_id", BIG_ID, nullable=True),
        sa.Column("measurement_id", BIG_ID, nullable=False),
        sa.Column("job_id", sa.String(), nullable=True),
        sa.Column("latency_us", sa.Double(), nullable=False),
        sa.Column("low_us", sa.Double(), nullable=False),
        sa.Column("high_us", sa.Double(), nullable=False),
        sa.Column("max_error", sa.Double(), nullable=False),
        sa.Column("trace", sa.LargeBinary(), nullable=False),
        sa.Column("run_us", sa.LargeBinary(), nullable=False),
        sa.Column("created_at", sa.Float(53), server_default=now(), nullable=False),
        sa.ForeignKeyConstraint(["context_id"], ["contexts.id"], name="fk_schedules_context_id"),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"], name="fk_schedules_job_id"),
        sa.ForeignKeyConstraint(["measurement_id"], ["measurements.id"], name="fk_schedules_measurement_id"),
        sa.ForeignKeyConstraint(["target_id"], ["targets.id"], name="fk_schedules_target_id"),
        sa.ForeignKeyConstraint(["workload_id"], ["workloads.id"], name="fk_schedules_workload_id"),
        sa.PrimaryKeyConstraint("id", name="pk_schedules"),
        sa.UniqueConstraint("measurement_id", name="uq_schedules_measurement_id"),
    )
    op.create_index("ix_schedules_best", "schedules", ["workload_id", "target_id", "latency_us"])
