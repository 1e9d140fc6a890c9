"""What came from a device is taken back: measurements, what rests on them, and nothing else."""

import pytest
from sqlalchemy import select, update

from mallorn.core.cost_model_name import base_family
from mallorn.core.errors import NotFound
from mallorn.core.outcomes import Outcome
from mallorn.core.values.fleet import DisturbedInterval
from mallorn.db.measurement_codec import unpack_times
from mallorn.db.repositories.cost_models import CostModels, NewCostModel
from mallorn.db.repositories.devices import Devices, SeenDevice
from mallorn.db.repositories.trials import Trials
from mallorn.db.repositories.withdraw_measurements import CLOCKS_SEC, Withdrawals
from mallorn.db.tables import Measurement, Schedule
from tests.fixtures.schedules import promote


@pytest.fixture
def devices(rows):
    """Two devices: one that lies, and one that does not."""

    def see(session, name):
        return Devices(session).record_seen(SeenDevice(name, rows.target_id, name, "host", 2, "0.27.0"))

    return {name: rows.write(lambda session, name=name: see(session, name)) for name in ("liar", "honest")}


def measured(rows, device_id, *latencies_us, first=0, **changes):
    """A round that a device timed; the ids of its rows."""
    batch = [rows.ok(first + n, us, device_id=device_id, **changes) for n, us in enumerate(latencies_us)]
    round_id = rows.closed_round(*batch)
    found = select(Measurement).where(Measurement.round_id == round_id).order_by(Measurement.id)
    return [row.id for row in rows.read(lambda session: session.scalars(found).all())]


def withdraw(rows, name="liar", since=None):
    return rows.write(lambda session: Withdrawals(session).withdraw(name, since))


def best_us(rows):
    found = rows.read(lambda session: Trials(session).best(rows.workloads["w0"], rows.target_id))
    return [trial.latency_us for trial in found]


def history(rows):
    return rows.read(lambda session: Trials(session).history(rows.workloads["w0"], rows.target_id))


def trained(rows, family, seen_upto):
    new = NewCostModel(family, rows.target_id, "xgboost", seen_upto, 10, {}, b"blob")
    return rows.write(lambda session: CostModels(session).add(new).id)


def head(rows, family):
    return rows.read(lambda session: CostModels(session).head(family, rows.target_id, "xgboost"))


def test_the_winner_is_the_honest_one_again(rows, devices):
    measured(rows, devices["liar"], 0.5, 0.6)
    measured(rows, devices["honest"], 7.0, first=5)
    assert best_us(rows) == [0.5]
    assert withdraw(rows).measurements == 2
    assert best_us(rows) == [7.0]
    assert [trial.latency_us for trial in history(rows)] == [7.0]


def test_a_measurement_stays_with_what_it_was(rows, devices):
    (row_id,) = measured(rows, devices["liar"], 0.5)
    withdraw(rows)
    row = rows.read(lambda session: session.get_one(Measurement, row_id))
    assert (row.outcome, row.latency_us, row.error) == (Outcome.WITHDRAWN, None, "ok: ")
    assert list(unpack_times(row.run_us)) == [0.5]


def test_what_a_liar_called_wrong_may_win_again(rows, devices):
    measured(rows, devices["honest"], 7.0)
    wrong = rows.failed(0, Outcome.WRONG_RESULT, device_id=devices["liar"])
    rows.measured_round(wrong)
    assert best_us(rows) == []
    withdraw(rows)
    assert best_us(rows) == [7.0]


def test_schedules_that_rest_on_it_go_and_their_jobs_are_named(rows, devices):
    kept, gone = promote(rows, "w0", 9.0), promote(rows, "w1", 1.0)
    of_gone = select(Schedule.measurement_id).where(Schedule.id == gone).scalar_subquery()
    came = update(Measurement).where(Measurement.id == of_gone).values(device_id=devices["liar"])
    rows.write(lambda session: session.execute(came) and None)
    found = withdraw(rows)
    assert (found.schedules, found.jobs) == (1, [rows.job_id])
    assert rows.read(lambda session: session.scalars(select(Schedule.id)).all()) == [kept]


def test_models_that_may_have_learned_from_it_are_active_no_longer(rows, devices):
    (before,) = measured(rows, devices["honest"], 7.0)
    trained(rows, "matmul", before)
    (lie,) = measured(rows, devices["liar"], 0.5, first=3)
    trained(rows, "matmul", lie)
    trained(rows, "softmax", lie)
    assert withdraw(rows).cost_models == 1
    assert head(rows, "matmul") is None, "the next round trains anew"
    assert head(rows, "softmax") is not None


def test_bases_of_its_operators_are_active_no_longer(rows, devices):
    (lie,) = measured(rows, devices["liar"], 0.5)
    trained(rows, base_family("matmul"), lie)
    trained(rows, base_family("softmax"), lie)
    assert withdraw(rows).cost_models == 1
    assert head(rows, base_family("matmul")) is None
    assert head(rows, base_family("softmax")) is not None


def test_a_model_of_before_stays(rows, devices):
    (before,) = measured(rows, devices["honest"], 7.0)
    trained(rows, "matmul", before)
    measured(rows, devices["liar"], 0.5, first=3)
    assert withdraw(rows).cost_models == 0
    assert head(rows, "matmul") is not None


def test_what_was_measured_before_a_time_is_believed(rows, devices):
    (old,) = measured(rows, devices["liar"], 7.0)
    rows.write(
        lambda session: (
            session.execute(update(Measurement).where(Measurement.id == old).values(created_at=1000.0))
            and None
        )
    )
    measured(rows, devices["liar"], 0.5, first=3)
    assert withdraw(rows, since=2000.0).measurements == 1
    assert best_us(rows) == [7.0]


def test_counting_changes_nothing_and_the_second_time_there_is_nothing_left(rows, devices):
    measured(rows, devices["liar"], 0.5)
    assert rows.read(lambda session: Withdrawals(session).count("liar")).measurements == 1
    assert best_us(rows) == [0.5]
    withdraw(rows)
    assert withdraw(rows).measurements == 0


def test_a_device_that_nobody_saw_is_told(rows):
    with pytest.raises(NotFound, match="there is no device nobody"):
        withdraw(rows, "nobody")


def test_a_bound_is_taken_back_like_a_time(rows, devices):
    measured(rows, devices["liar"], 5.0, disturbed=0.5)
    assert best_us(rows) == [5.0], "where nothing else is known"
    withdraw(rows)
    assert best_us(rows) == []


def test_times_of_a_disturbed_interval_become_bounds_and_no_others_do(rows, devices):
    for at_sec, latency_us, first in ((1000.0, 0.5, 0), (2000.0, 0.6, 3), (3000.0, 9.0, 6)):
        (row_id,) = measured(rows, devices["liar"], latency_us, first=first)
        when = update(Measurement).where(Measurement.id == row_id).values(created_at=at_sec)
        rows.write(lambda session, when=when: session.execute(when) and None)
    measured(rows, devices["honest"], 7.0, first=9)
    interval = DisturbedInterval(since=990.0, until=2000.0 - CLOCKS_SEC)

    def mark(session):
        return Withdrawals(session).mark_disturbed("liar", interval)

    assert rows.write(mark) == 2
    assert best_us(rows) == [7.0]
    assert sorted(trial.latency_us for trial in history(rows)) == [7.0, 9.0]
    seen_upto = 10**6
    trained(rows, "matmul", seen_upto)
    assert rows.write(mark) == 0
    assert head(rows, "matmul") is not None, "what was marked before ends no model again"
