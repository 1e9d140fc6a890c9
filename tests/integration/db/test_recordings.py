"""Measured tasks are told apart by workload and measuring context."""

from mallorn.db.repositories.measuring_contexts import Contexts
from mallorn.db.repositories.trials import MeasuredTasks


def test_two_contexts_are_two_tasks_in_the_order_they_were_met(rows):
    def elsewhere(session):
        return Contexts(session).ensure(rows.target_id, "another", "0.27.0", 2, {}).id

    other = rows.write(elsewhere)
    rows.measured_round(rows.ok(0, context_id=other), rows.failed(1, context_id=None), workload="w1")
    rows.measured_round(rows.ok(0))
    found = rows.read(lambda session: MeasuredTasks(session).list())
    assert [(each.workload_id, each.context_id) for each in found] == [
        (rows.workloads["w1"], other),
        (rows.workloads["w0"], rows.context_id),
    ]
    assert [len(rows.read(lambda session, e=each: MeasuredTasks(session).trials(e))) for each in found] == [
        2,
        1,
    ]
