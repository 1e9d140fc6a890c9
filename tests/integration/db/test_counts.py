"""Statistics say the same whatever of the rows was counted before."""

from sqlalchemy import select

from mallorn.db.repositories.dataset_statistics import Counts, Statistics
from mallorn.db.repositories.devices import Devices, SeenDevice
from mallorn.db.repositories.withdraw_measurements import Withdrawals
from mallorn.db.tables import MeasurementCount


def stats(rows, owner="ada"):
    return rows.read(lambda session: Statistics(session).of(owner))


def grown(rows, settled_sec=-60.0):
    return rows.write(lambda session: Counts(session).count_new_rows(settled_sec))


def cells(rows):
    return rows.read(lambda session: session.scalars(select(MeasurementCount)).all())


def test_what_is_counted_and_what_is_not_yet_are_told_together(rows):
    rows.measured_round(rows.ok(0), rows.failed(1))
    assert grown(rows) == 2
    rows.measured_round(rows.ok(0), workload="w1")
    told = stats(rows)
    assert (told.measurements, told.workloads) == (3, 2)
    assert {of.name: of.count for of in told.outcomes} == {"ok": 2, "build_error": 1}
    grown(rows)
    assert stats(rows) == told
    assert stats(rows, None) == told
    assert stats(rows, "bob").measurements == 0


def test_rows_that_may_not_be_all_there_yet_are_left(rows):
    rows.measured_round(rows.ok(0))
    assert grown(rows, settled_sec=600) == 0
    assert cells(rows) == []
    assert stats(rows).measurements == 1


def test_counted_again_nothing_is_counted_twice(rows):
    rows.measured_round(rows.ok(0), rows.ok(1))
    assert [grown(rows), grown(rows)] == [2, 0]
    assert {cell.rows for cell in cells(rows)} == {2}


def test_what_is_withdrawn_is_counted_as_that(rows):
    seen = SeenDevice("liar", rows.target_id, "liar", "host", 2, "0.27.0")
    liar = rows.write(lambda session: Devices(session).record_seen(seen))
    rows.measured_round(rows.ok(0, device_id=liar), rows.ok(1))
    grown(rows)
    rows.measured_round(rows.ok(0, device_id=liar), workload="w1")
    rows.write(lambda session: Withdrawals(session).withdraw("liar"))
    told = stats(rows)
    assert {of.name: of.count for of in told.outcomes} == {"withdrawn": 2, "ok": 1}
    grown(rows)
    assert stats(rows) == told
    assert told.measurements == 3


def test_a_device_of_many_rows_is_withdrawn_a_few_at_a_time(rows, monkeypatch):
    monkeypatch.setattr("mallorn.db.repositories.withdraw_measurements.AT_A_TIME", 2)
    seen = SeenDevice("liar", rows.target_id, "liar", "host", 2, "0.27.0")
    liar = rows.write(lambda session: Devices(session).record_seen(seen))
    rows.measured_round(*[rows.ok(slot, device_id=liar) for slot in range(5)])
    assert rows.write(lambda session: Withdrawals(session).withdraw("liar")).measurements == 5
    assert rows.write(lambda session: Withdrawals(session).withdraw("liar")).measurements == 0
