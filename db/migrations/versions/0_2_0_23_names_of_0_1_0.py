"""Stored JSON has today's names of fields and graph passes; what only 0.1.0 wrote is dropped"""

from collections.abc import Mapping, Sequence
from typing import Any

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision: str = "0.2.0.23"
down_revision: str | None = "0.2.0.22"
branch_labels: str | Sequence[str] | None = None
depends_on: str | Sequence[str] | None = None

AT_A_TIME = 500
JSON = sa.JSON().with_variant(postgresql.JSONB(), "postgresql")

# Fields by class of values: the name in 0.1.0, and today's.
RENAMED: Mapping[str, Mapping[str, str]] = {
    "Contention": {"wins_from": "min_programs"},
    "CostModelMetrics": {
        "trained_on": "training_rows",
        "chosen_from": "available_rows",
        "foreign": "foreign_rows",
    },
    "DeviceInfo": {"locks": "lock_file"},
    "DeviceMachine": {"why": "reason", "at": "probed_at"},
    "Disturbance": {
        "timed": "candidates",
        "bounds": "upper_bounds",
        "kept_sec": "valid_sec",
        "lost_sec": "repeated_sec",
        "rivals": "other_programs",
        "raised": "has_priority",
    },
    "FinishReport": {
        "found": "schedule_count",
        "of": "workload_count",
        "missing": "unscheduled_workloads",
        "without_schedule": "tasks_without_winner",
        "without_time": "untimed_tasks",
        "inside_the_model": "model_contests",
        "found_by": "search_methods",
        "answers": "unmeasured_schedules",
        "not_done": "skipped_steps",
    },
    "GraphStep": {"skipped": "skip_reason"},
    "ModelContests": {"taken": "uses_replacements", "guessed": "uses_guesses"},
    "Outlook": {"now_us": "current_us", "end_us": "expected_us"},
    "RemainingCopy": {"asked_by": "required_by"},
    "RoundForecast": {"promise": "gain_probability"},
    "RoundNotes": {"without": "skipped_parts"},
    "RoundStats": {"rank_own": "own_accuracy"},
    "SkippedPart": {"why": "reason"},
    "SkippedStep": {"why": "reason"},
    "TaskGap": {"op": "operator", "open": "initial_gap", "won": "closed_gap"},
    "TuningGain": {"unseen": "unseen_operators"},
    "UnmeasuredSchedule": {"because": "basis", "sure": "confidence", "checked": "is_verified"},
    "WorkerInfo": {
        "tunes": "can_tune",
        "locks": "lock_file",
        "resting": "missing_resource",
        "roll_call_error": "device_list_error",
    },
    # Payloads of events, by kind.
    "exported": {"sec": "seconds", "ratio": "latency_ratio"},
    "failed": {"why": "reason"},
    "family_changed": {"why": "reason"},
    "finishing": {"why": "reason"},
    "imported": {"known": "known_measurements"},
    "measured": {"failed": "failures"},
    "paused": {"why": "reason"},
    "round_closed": {"rank_own": "own_accuracy"},
}
# Values inside of values, by today's name of the field: `[]` marks a list, `{}` a dict by name.
NESTED: Mapping[str, Mapping[str, str]] = {
    "Conditions": {"trials": "Disturbance"},
    "FinishReport": {
        "conditions": "Conditions",
        "contention": "Contention",
        "gaps": "TaskGap[]",
        "model_contests": "ModelContests",
        "outlook": "Outlook",
        "skipped_steps": "SkippedStep[]",
        "tuning_gain": "TuningGain",
        "unmeasured_schedules": "UnmeasuredSchedule{}",
    },
    "GraphReport": {"copies": "RemainingCopy[]", "recipe": "StoredRecipe", "steps": "GraphStep[]"},
    "RecipeStep": {"args": "RecipeStep[]"},
    "RoundNotes": {"forecast": "RoundForecast", "skipped_parts": "SkippedPart[]"},
    "RoundStats": {"disturbance": "Disturbance"},
    "StoredRecipe": {"after": "RecipeStep[]", "before": "RecipeStep[]"},
    "benched": {"report": "FinishReport"},
    "done": {"report": "FinishReport"},
    "finishing": {"outlook": "Outlook"},
    "round_closed": {"disturbance": "Disturbance"},
    "round_planned": {"forecast": "RoundForecast", "outlook": "Outlook"},
}
# Graph passes: after "mallorn." the name in 0.1.0, then today's name.
RENAMED_PASSES = """
    batch_norms fold_batch_norm, bf16 bf16_dot_products, blocked keep_block_quantized_weights,
    calls wrap_extern_calls, cancelled cancel_transposes, channel_runs copy_channel_runs,
    concats concat_to_copies, constants fold_constant_operators, copies fold_constant_copies,
    cumulative vectorize_cumsum, depthwise fuse_pointwise_into_depthwise, find_norms find_group_norms,
    folds mark_reductions, groups grouped_conv_to_batched, heads fuse_transposes_into_batched_matmul,
    int8 int8_dot_products, integers compute_in_integers, joined keep_joined_groups_apart,
    laid keep_packed_weights, lanes vector_lanes, lines mark_elementwise_rows, lookups fuse_lookups,
    norms group_norm_to_partial_sums, passable prepare_convert_layout, pools move_pool_before_pointwise,
    reached trim_weights_on_padding, reals fuse_dequantize, restore_clip clip_to_max_min,
    rows vectorize_softmax_and_layer_norm, shuffles fold_channel_shuffles,
    smooth vectorize_smooth_functions, steps fuse_requantize, taps int8_depthwise_conv,
    transposed split_conv_transpose_by_phase, transposes tile_transposes, vectors pad_conv_to_vectors,
    views move_elementwise_before_reshape, whole pad_matmul_to_tiles, winograd conv3x3_to_winograd
"""
PASSES = dict(map(str.split, RENAMED_PASSES.split(",")))
# Columns of values: table, primary key, column and class; None: the column `kind` names the class.
COLUMNS: Sequence[tuple[str, Sequence[str], str, str | None]] = (
    ("cost_models", ["id"], "metrics", "CostModelMetrics"),
    ("devices", ["id"], "info", "DeviceInfo"),
    ("devices", ["id"], "machine", "DeviceMachine"),
    ("events", ["job_id", "seq"], "payload", None),
    ("jobs", ["id"], "graph", "GraphReport"),
    ("jobs", ["id"], "report", "FinishReport"),
    ("rounds", ["id"], "reason", "RoundNotes"),
    ("rounds", ["id"], "stats", "RoundStats"),
    ("workers", ["id"], "info", "WorkerInfo"),
)


def upgrade() -> None:
    rename()
    op.drop_index("ix_search_states_task", "search_states")
    op.drop_table("search_states")
    op.drop_column("rounds", "state_from")


def rename() -> None:
    """Rename the keys of all stored values; those that have today's names stay."""
    for table, primary, column, kind in COLUMNS:
        _rename_column(table, primary, column, kind)


def _rename_column(name: str, primary: Sequence[str], column: str, kind: str | None) -> None:
    plain = [*primary, "kind"] if kind is None else primary
    table = sa.table(name, *(sa.column(key) for key in plain), sa.column(column, JSON))
    keys, value = [table.c[key] for key in primary], table.c[column]
    query = sa.select(table).where(value.is_not(None)).order_by(*keys).limit(AT_A_TIME)
    if kind is None:
        query = query.where(table.c.kind.in_(RENAMED.keys() | NESTED.keys()))
    change = sa.update(table).where(*(key == sa.bindparam(f"key_{key.name}") for key in keys))
    change = change.values({column: sa.bindparam("renamed", type_=JSON)})
    connection, page = op.get_bind(), query
    while rows := connection.execute(page).mappings().all():
        renamed = [(row, to_today(row[column], kind or row["kind"])) for row in rows]
        changed = [
            {"renamed": today} | {f"key_{key}": row[key] for key in primary}
            for row, today in renamed
            if today != row[column]
        ]
        if changed:
            connection.execute(change, changed)
        if len(rows) < AT_A_TIME:
            break
        page = query.where(sa.tuple_(*keys) > sa.tuple_(*(sa.literal(rows[-1][key]) for key in primary)))


def to_today(value: Any, kind: str) -> Any:
    """Return a stored value of a class with today's names."""
    if kind.endswith("[]") and isinstance(value, list):
        return [to_today(item, kind.removesuffix("[]")) for item in value]
    if not isinstance(value, dict):
        return value
    if kind.endswith("{}"):
        return {name: to_today(item, kind.removesuffix("{}")) for name, item in value.items()}
    names, nested = RENAMED.get(kind, {}), NESTED.get(kind, {})
    today = {names.get(name, name): item for name, item in value.items() if names.get(name) not in value}
    if kind in ("RecipeStep", "GraphStep"):
        today |= {key: pass_of_today(today[key]) for key in ("pass", "call") if key in today}
    return {name: to_today(item, nested.get(name, "")) for name, item in today.items()}


def pass_of_today(name: Any) -> Any:
    first, _, second = str(name).partition(".")
    return PASSES.get(second, name) if first == "mallorn" else name
