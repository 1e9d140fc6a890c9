"""Measurements are stored once, compactly, and read back as searchers, trainers and users need them."""

from dataclasses import replace

import pytest
from sqlalchemy import text

from mallorn.core.errors import LeaseLost
from mallorn.core.outcomes import Outcome
from mallorn.core.states import JobState, WorkKind
from mallorn.core.values.candidate import Candidate
from mallorn.core.values.trial import Trial
from mallorn.db.repositories import trials as trials_module
from mallorn.db.repositories.jobs import Jobs
from mallorn.db.repositories.leases import LeaseToken, WorkItem
from mallorn.db.repositories.measurements import Measurements, NewMeasurement, Records
from mallorn.db.repositories.measuring_contexts import Contexts
from mallorn.db.repositories.rounds import Rounds
from mallorn.db.repositories.trials import Trials

MOST = 99  # rows of a family


def commit(rows, hold, batch):
    return rows.write(lambda session: Measurements(session).add_trials(hold, batch))


def finish(rows, batch):
    def act(session):
        Jobs(session).move_to_state(rows.job_id, [JobState.TUNING], JobState.FINISHING)
        hold = Jobs(session).claim_stage(rows.job_id, JobState.FINISHING, "w", 60)
        program = rows.workloads["w0"], rows.target_id
        return Measurements(session).add_finish(hold, *program, batch)

    return rows.write(act)


def history(rows, workload="w0", upto=None):
    return rows.read(lambda session: Trials(session).history(rows.workloads[workload], rows.target_id, upto))


def ids(rows):
    return rows.read(
        lambda session: Trials(session).read_family_columns("matmul", rows.target_id, MOST)[0]["id"]
    )


def best(rows, count=1, context_id=None):
    return rows.read(
        lambda session: Trials(session).best(rows.workloads["w0"], rows.target_id, count, context_id)
    )


def test_a_slot_is_stored_once(rows):
    round_id, hold = rows.claimed_round()
    assert commit(rows, hold, [rows.ok(0), rows.ok(1)]) == 2
    assert commit(rows, hold, [rows.ok(1, 5.0), rows.ok(2)]) == 1
    assert rows.read(lambda session: Rounds(session).done_slots(round_id)) == {0, 1, 2}
    assert [trial.latency_us for trial in history(rows)] == [10.0, 10.0, 10.0]


def test_rows_are_numbered_in_slot_order(rows):
    rows.closed_round(rows.ok(3), rows.ok(0), rows.ok(2))
    assert [trial.candidate.decisions[0] for trial in history(rows)] == [0, 2, 3]


def test_an_empty_batch_still_asks_the_fence(rows):
    _, hold = rows.claimed_round()
    assert commit(rows, hold, []) == 0
    with pytest.raises(LeaseLost):
        commit(rows, replace(hold, attempt=99), [])


def test_the_latency_is_the_median_of_the_run_times(rows):
    rows.closed_round(rows.ok(0, run_us=(9.0, 1.0, 2.0)))
    assert history(rows)[0].latency_us == 2.0


@pytest.mark.parametrize(("outcome", "run_us"), [(Outcome.OK, ()), (Outcome.RUN_ERROR, (1.0,))])
def test_run_times_belong_to_ok_alone(outcome, run_us):
    with pytest.raises(ValueError, match="only the outcome ok has run times"):
        NewMeasurement(0, Trial(Candidate("s", (1,)), outcome, run_us=run_us), 1)


def test_history_ends_where_the_round_may_look(rows):
    rows.closed_round(*[rows.ok(slot) for slot in range(4)])
    _, upto, *_ = ids(rows)
    assert [trial.candidate.decisions[0] for trial in history(rows, upto=upto)] == [0, 1]


def test_history_tells_failures_apart_and_leaves_out_repeats(rows):
    rows.closed_round(rows.ok(0), rows.failed(1, Outcome.RUN_TIMEOUT))
    finish(rows, [rows.ok(0, 9.0)])
    found = [(trial.outcome, trial.latency_us) for trial in history(rows)]
    assert found == [(Outcome.OK, 10.0), (Outcome.RUN_TIMEOUT, None)]


def test_history_within_a_context_has_what_never_reached_a_device_too(rows):
    elsewhere = rows.write(
        lambda session: Contexts(session).ensure(rows.target_id, "another", "0.27.0", 2, {}).id
    )
    lost = rows.failed(1, context_id=None)
    rows.closed_round(rows.ok(0), lost, rows.ok(2, context_id=elsewhere), rows.ok(3))
    here = rows.read(
        lambda session: Trials(session).history(
            rows.workloads["w0"], rows.target_id, context_id=rows.context_id
        )
    )
    assert [trial.candidate.decisions[0] for trial in here] == [0, 1, 3]


def test_best_lists_distinct_candidates_fastest_first(rows):
    rows.closed_round(rows.ok(0, 30.0), rows.ok(1, 10.0), rows.ok(2, 20.0), rows.failed(3))
    finish(rows, [rows.ok(1, 11.0)])
    found = [(trial.candidate.decisions[0], trial.latency_us) for trial in best(rows, 5)]
    assert found == [(1, 10), (2, 20), (0, 30)]


def test_a_candidate_found_wrong_is_never_best(rows):
    rows.closed_round(rows.ok(0, 30.0), rows.ok(1, 10.0))
    finish(rows, [rows.failed(1, Outcome.WRONG_RESULT)])
    assert [trial.candidate.decisions[0] for trial in best(rows, 5)] == [0]


def test_best_within_a_context_ignores_other_machines(rows):
    rows.closed_round(rows.ok(0, 30.0), rows.ok(1, 10.0, context_id=None))
    assert best(rows, context_id=rows.context_id)[0].latency_us == 30.0


def test_repeats_are_refused_from_a_worker_that_lost_the_finish(rows):
    finish(rows, [])
    program = rows.workloads["w0"], rows.target_id
    old = LeaseToken(WorkItem(WorkKind.FINISH, rows.job_id), 99, "w")
    with pytest.raises(LeaseLost, match="finish"):
        rows.write(lambda session: Measurements(session).add_finish(old, *program, [rows.ok(0)]))


def test_a_family_is_read_across_workloads_from_where_training_stopped(rows):
    rows.closed_round(rows.ok(0), rows.ok(1))
    rows.closed_round(rows.ok(0), workload="w1")

    def family(session):
        trials = Trials(session)
        outlines, _ = trials.read_family_columns("matmul", rows.target_id, MOST)
        first, *others = outlines["id"]
        return (
            outlines,
            trials.by_ids(others),
            trials.count_new_family_rows("matmul", rows.target_id, MOST, first),
        )

    outlines, others, growth = rows.read(family)
    assert list(outlines["workload_id"]) == [rows.workloads[key] for key in ("w0", "w0", "w1")]
    assert [trial.candidate for trial in others] == [Candidate("sketch", (1, 2)), Candidate("sketch", (0, 2))]
    assert (len(outlines), growth) == (3, 2)
    assert (
        len(rows.read(lambda session: Trials(session).read_family_columns("conv2d", rows.target_id, MOST)[0]))
        == 0
    )


def test_known_counts_what_an_import_finds(rows):
    rows.closed_round(rows.ok(0), rows.failed(1))
    ids = list(rows.workloads.values())
    known = rows.read(lambda session: Trials(session).count_learnable_by_workload(ids, rows.target_id))
    assert known == {rows.workloads["w0"]: 2}


def test_records_are_paged_newest_first_and_hidden_from_other_owners(rows):
    rows.closed_round(*[rows.ok(slot) for slot in range(5)])

    def read(session):
        first = Records(session).page("ada", job_id=rows.job_id, limit=3)
        rest = Records(session).page("ada", job_id=rows.job_id, cursor=first.cursor, limit=3)
        return [*first.items, *rest.items], Records(session).page("bob").items

    mine, theirs = rows.read(read)
    assert [record.slot for record in mine] == [4, 3, 2, 1, 0]
    assert theirs == []
    assert (mine[0].workload, mine[0].sketch, mine[0].decisions) == ("w0", "sketch", [4, 2])
    assert mine[0].run_us == [10.0]


def test_records_are_filtered_by_what_they_are_about(rows):
    rows.closed_round(rows.ok(0), rows.failed(1))
    rows.closed_round(rows.ok(0), workload="w1")

    def count(**filters):
        return len(rows.read(lambda session: Records(session).page(None, **filters)).items)

    assert count() == 3
    assert count(workload="w0") == 2
    assert count(workload="w0", outcome=Outcome.BUILD_ERROR) == 1
    assert count(target=rows.target_key) == 3
    assert count(target="another") == 0


def test_a_measurement_takes_less_than_400_bytes(rows):
    """A row of ResNet's size: 40 decisions, ten run times, every column filled."""
    size = 64
    decisions = tuple(range(-1, 39))
    batch = [
        rows.ok(
            slot,
            decisions=decisions,
            run_us=tuple(100.0 + i for i in range(10)),
            build_ms=812.25,
            run_ms=153.5,
            predicted=-0.25,
            origin="evolutionary",
        )
        for slot in range(size)
    ]
    rows.closed_round(*batch)
    with rows.database.session() as session:
        if session.get_bind().dialect.name == "postgresql":
            query = "SELECT max(pg_column_size(m.*)) FROM measurements m"
        else:
            query = f"SELECT sum(payload) / {size} FROM dbstat WHERE name = 'measurements'"
        assert session.execute(text(query)).scalar_one() < 400


@pytest.fixture
def long(rows, monkeypatch):
    """A workload with ten trials, the fastest first, of which a round reads the newest and a few others."""
    monkeypatch.setattr(trials_module, "NEWEST", 4)
    monkeypatch.setattr(trials_module, "FASTEST", 2)
    rows.closed_round(*(rows.ok(slot, 10.0 + slot, decisions=(slot, 2)) for slot in range(7)))
    rows.closed_round(
        rows.failed(0, decisions=(7, 2)), *(rows.ok(slot, 60.0, decisions=(7 + slot, 2)) for slot in (1, 2))
    )
    return rows


def test_a_long_history_is_its_newest_trials_and_the_fastest_before_them_in_their_order(long):
    assert [trial.candidate.decisions[0] for trial in history(long)] == [0, 1, 6, 7, 8, 9]
    first_round = history(long, upto=ids(long)[5])
    assert [trial.candidate.decisions[0] for trial in first_round] == [0, 1, 2, 3, 4, 5]


def test_a_history_that_is_short_enough_is_whole(long, monkeypatch):
    monkeypatch.setattr(trials_module, "NEWEST", 10)
    assert [trial.candidate.decisions[0] for trial in history(long)] == list(range(10))


def test_trials_of_candidates_are_found_however_old_they_are(long):
    candidates = [trial.candidate for trial in history(long)]
    asked = {replace(candidates[0], decisions=decisions) for decisions in ((3, 2), (7, 2), (3, 3))}

    def find(session):
        return Trials(session).history(long.workloads["w0"], long.target_id, candidates=asked)

    found = {trial.candidate.decisions: trial.outcome for trial in long.read(find)}
    assert found == {(3, 2): Outcome.OK, (7, 2): Outcome.BUILD_ERROR}


def test_of_a_family_with_more_rows_than_may_be_read_each_workload_keeps_its_newest_and_fastest(long):
    long.closed_round(*(long.ok(slot, 5.0 + slot, decisions=(slot, 3)) for slot in range(8)), workload="w1")

    def read(most):
        columns, total = long.read(lambda s: Trials(s).read_family_columns("matmul", long.target_id, most))
        assert total == min(most, 18)
        return list(zip(columns["workload_id"], columns["latency_us"], strict=True))

    whole, (first, second) = read(18), [long.workloads[name] for name in ("w0", "w1")]
    assert len(whole) == 18
    assert whole == [row for row in whole if row[0] == first] + [row for row in whole if row[0] == second]
    assert read(8) == [(first, us) for us in (10.0, 11.0, 60.0, 60.0)] + [
        (second, us) for us in (5.0, 6.0, 11.0, 12.0)
    ]


def test_new_rows_of_a_family_are_counted_up_to_a_limit(long):
    def count(most, after_id=0):
        return long.read(lambda s: Trials(s).count_new_family_rows("matmul", long.target_id, most, after_id))

    assert [count(most) for most in (3, 10, 99)] == [3, 10, 10]
    assert count(99, after_id=ids(long)[7]) == 2
