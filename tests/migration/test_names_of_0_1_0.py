"""An upgrade renames the fields of stored values, wherever they are nested, and loses none."""

from collections.abc import Iterator
from importlib import import_module
from pkgutil import iter_modules
from typing import Any

import pytest
import sqlalchemy as sa
from alembic.operations import Operations
from alembic.runtime.migration import MigrationContext

from mallorn.core import values as values_package
from mallorn.core.values.base import Value
from mallorn.core.values.event import JobEvent
from mallorn.graphc.core.pass_registry import resolve_pass
from tests.fixtures.rows import Rows

MIGRATION = import_module("mallorn.db.migrations.versions.0_2_0_23_names_of_0_1_0")
FORECAST = {"expected_us": 2.0, "low_us": 1.0, "high_us": 3.0, "promise": 0.5}
OUTLOOK = {"now_us": 4.0, "end_us": 3.0, "gain": 0.1}
DISTURBANCE = {"timed": 3, "bounds": 1, "kept_sec": 2.0, "lost_sec": 1.0, "rivals": 0.5, "raised": False}
REPORT = {
    "found": 1,
    "of": 2,
    "missing": ["b"],
    "without_schedule": ["b"],
    "without_time": ["a"],
    "inside_the_model": {"tasks": [], "taken": True, "guessed": False, "seconds": 1.0},
    "found_by": {"default": 1},
    "answers": {"a": {"source": "same", "because": "x", "sure": "measured", "checked": True}},
    "not_done": [{"step": "check", "why": "no device answers"}],
    "conditions": {"steady": False, "trials": DISTURBANCE},
    "contention": {"wins_from": 2, "seconds": 1.0},
    "outlook": OUTLOOK,
    "gaps": [{"op": "dense", "open": 0.5, "won": 0.2}],
    "tuning_gain": {"gain": 0.1, "low": 0.0, "high": 0.2, "trials": 9, "seconds": 3.0, "unseen": ["dense"]},
}
NOTES = {
    "policy": "first-pass",
    "why": "its turn",
    "without": [{"name": "forest", "why": "broken"}],
    "bonus": 0.1,
}
PASSES = [{"pass": "mallorn.winograd", "args": [{"call": "mallorn.lanes", "args": []}, 8], "optional": False}]
GRAPH = {
    "copies": [{"function": "f", "kind": "transpose", "asked_by": "conv2d", "calls": 2}],
    "steps": [{"pass": "mallorn.winograd", "skipped": "no float32"}, {"pass": "relax.transform.FuseOps"}],
    "recipe": {
        "name": "tuned",
        "version": 1,
        "before": PASSES,
        "after": [{"pass": "relax.transform.FuseOps"}],
    },
}
EVENTS = {
    "imported": {"tasks": 1, "known": 3},
    "family_changed": {"task": 1, "name": "d", "from": "a", "to": "b", "why": "alike"},
    "round_planned": {"round": 0, "why": "its turn", "forecast": FORECAST, "outlook": OUTLOOK},
    "measured": {"round": 0, "task": 0, "name": "d", "trials": 4, "failed": 1, "best_us": 1.0},
    "round_closed": {"rank_own": 0.5, "disturbance": DISTURBANCE},
    "finishing": {"why": "enough", "outlook": OUTLOOK},
    "exported": {"sec": 3.0, "ratio": 0.9},
    "done": {"report": REPORT},
    "benched": {"report": REPORT},
    "failed": {"why": "alone"},
    "paused": {"state": "tuning", "why": "asked"},
    "of_a_later_version": {"why": "kept"},
}
# Values by class as 0.1.0 stored them.
STORED: dict[str, dict[str, Any]] = {
    "CostModelMetrics": {"trained_on": 8, "chosen_from": 9, "foreign": 1, "groups": 1},
    "DeviceInfo": {"address": "here", "locks": "/run/locks"},
    "DeviceMachine": {"machine": None, "why": "no compiler", "at": 5.0},
    "FinishReport": REPORT,
    "GraphReport": GRAPH,
    "RoundNotes": NOTES | {"forecast": FORECAST},
    "RoundStats": {"rank_own": 0.5, "disturbance": DISTURBANCE},
    "WorkerInfo": {"tunes": False, "locks": "", "resting": "memory", "roll_call_error": "refused"},
} | EVENTS


def classes_below(kind: type[Value] = Value) -> Iterator[type[Value]]:
    for below in kind.__subclasses__():
        yield below
        yield from classes_below(below)


def read_classes() -> dict[str, type[Value]]:
    """All classes of values, by their name and, for an event, by its kind."""
    for module in iter_modules(values_package.__path__):
        import_module(f"{values_package.__name__}.{module.name}")
    found = {each.__name__: each for each in classes_below()}
    return found | {str(each.model_fields["kind"].default): each for each in classes_below(JobEvent)}


def keys(value: Any) -> Iterator[str]:
    """All keys of nested objects."""
    if isinstance(value, dict):
        yield from value
        value = list(value.values())
    if isinstance(value, list):
        for item in value:
            yield from keys(item)


def test_every_new_name_is_a_field_and_no_old_one_is() -> None:
    classes = read_classes()
    for kind, names in MIGRATION.RENAMED.items():
        fields = classes[kind].model_fields.keys()
        assert set(names.values()) <= fields, kind
        assert not names.keys() & fields, kind
    for kind, nested in MIGRATION.NESTED.items():
        if kind != "round_planned":  # its notes are further fields
            assert nested.keys() <= classes[kind].model_fields.keys(), kind


def test_every_renamed_class_is_among_the_examples() -> None:
    renamed = {old for names in MIGRATION.RENAMED.values() for old in names}
    assert renamed <= set(keys(list(STORED.values())))


@pytest.mark.parametrize("kind", STORED)
def test_a_value_has_todays_names_only_and_all_that_it_had(kind: str) -> None:
    today = MIGRATION.to_today(STORED[kind], kind)
    assert MIGRATION.to_today(today, kind) == today
    assert len(list(keys(today))) == len(list(keys(STORED[kind])))
    value_class = read_classes().get(kind)
    if value_class is None or kind in ("round_planned", "round_closed"):
        return
    read = value_class.model_validate(today | ({"kind": kind} if kind in EVENTS else {}))
    written = read.model_dump(mode="json", exclude_unset=True, exclude={"kind"} if kind in EVENTS else None)
    assert written == today


def test_a_name_of_today_is_not_overwritten() -> None:
    assert MIGRATION.to_today({"why": "old", "reason": "new"}, "failed") == {"reason": "new"}
    assert MIGRATION.to_today(None, "failed") is None


def test_every_old_name_of_a_pass_leads_to_a_pass() -> None:
    assert all(map(resolve_pass, MIGRATION.PASSES.values()))
    assert len(set(MIGRATION.PASSES.values())) == len(MIGRATION.PASSES)


@pytest.mark.parametrize("at_a_time", [1, 500])
def test_rows_are_renamed_where_they_lie(rows: Rows, at_a_time: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(MIGRATION, "AT_A_TIME", at_a_time)
    plain = map(sa.column, ("job_id", "seq", "kind", "created_at"))
    events = sa.table("events", *plain, sa.column("payload", MIGRATION.JSON))
    jobs = sa.table("jobs", sa.column("graph", MIGRATION.JSON), sa.column("report", MIGRATION.JSON))
    told = [
        {"job_id": rows.job_id, "seq": 100 + seq, "kind": kind, "payload": payload, "created_at": 1.0}
        for seq, (kind, payload) in enumerate(EVENTS.items())
    ]
    rows.write(lambda session: session.execute(sa.insert(events), told))
    rows.write(lambda session: session.execute(sa.update(jobs).values(graph=GRAPH, report=REPORT)))
    for _ in range(2):
        with rows.database.transaction() as session:
            with Operations.context(MigrationContext.configure(session.connection())):
                MIGRATION.rename()
            query = sa.select(events.c.kind, events.c.payload).where(events.c.seq >= 100)
            stored = {row.kind: row.payload for row in session.execute(query)}
            job = session.execute(sa.select(jobs)).one()
        assert stored == {kind: MIGRATION.to_today(payload, kind) for kind, payload in EVENTS.items()}
        assert job.graph == MIGRATION.to_today(GRAPH, "GraphReport")
        assert job.report == MIGRATION.to_today(REPORT, "FinishReport")
