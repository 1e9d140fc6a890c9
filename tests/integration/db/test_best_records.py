"""Best records and contexts of a workload: times of different conditions are not taken for the same."""

from mallorn.db.repositories.measuring_contexts import Contexts, compare_contexts, count_other_programs
from mallorn.db.repositories.schedules import BestRecords
from tests.fixtures.brought import bring
from tests.fixtures.rows import Rows

INSIDE = {"cache": "model", "beside": 0, "model": "one"}
BUSY = INSIDE | {"beside": 2}


def context(rows: Rows, evaluator: dict[str, object], host: str = "host", built_by: str | None = None) -> int:
    fields = rows.target_id, host, "0.27.0", 2, evaluator, built_by
    return int(rows.write(lambda session: Contexts(session).ensure(*fields).id))


def measure(rows: Rows, workload: str, context_id: int, *times_us: float) -> None:
    batch = [rows.ok(slot, us, context_id=context_id) for slot, us in enumerate(times_us)]
    rows.closed_round(*batch, workload=workload)


def records(rows: Rows) -> list[tuple[str, float | None]]:
    found = rows.read(lambda session: BestRecords(session).of_target(rows.target_id, "own"))
    return [(record.name, record.trial.latency_us) for record in found]


def test_times_inside_a_model_are_no_best_records_where_a_workload_was_timed_outside_one(rows: Rows) -> None:
    measure(rows, "w0", context(rows, INSIDE), 1.0)
    measure(rows, "w0", rows.context_id, 7.0)
    measure(rows, "w1", context(rows, BUSY), 3.0)
    assert records(rows) == [("fused_w0", 7.0), ("fused_w1", 3.0)]


def test_the_contexts_of_a_workload_come_by_how_often_they_timed_it(rows: Rows) -> None:
    busy = context(rows, BUSY)
    measure(rows, "w0", busy, 1.0)
    measure(rows, "w0", rows.context_id, 7.0, 8.0)
    measure(rows, "w1", context(rows, INSIDE), 2.0)
    rows.closed_round(rows.failed(0, context_id=context(rows, {}, "none")), workload="w0")
    found = rows.read(lambda session: Contexts(session).of_workload(rows.workloads["w0"], rows.target_id))
    assert [each.id for each in found] == [rows.context_id, busy]
    assert [count_other_programs(each) for each in found] == [None, 2]


def test_contexts_differ_in_host_or_builder_whatever_was_timed(rows: Rows) -> None:
    ids = [
        context(rows, {}),
        context(rows, INSIDE),
        context(rows, {}, "other"),
        context(rows, {}, built_by="9"),
    ]
    own, *others = rows.read(lambda session: [Contexts(session).get(each) for each in ids])
    assert [compare_contexts(own, other) for other in others] == [
        (False, False),
        (True, False),
        (False, True),
    ]


def test_contexts_of_other_datasets_are_told_apart_from_those_of_this_one(rows: Rows) -> None:
    measure(rows, "w0", rows.context_id, 7.0)
    bring(rows, "w0", 5.0)

    def found(imported: bool) -> list[str]:
        which = rows.workloads["w0"], rows.target_id
        contexts = rows.read(lambda session: Contexts(session).of_workload(*which, imported=imported))
        return [each.host_class for each in contexts]

    assert (found(False), found(True)) == (["host"], ["unknown"])
