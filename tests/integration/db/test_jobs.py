"""Jobs are created once, move only along allowed ways, and belong to their owner."""

from concurrent.futures import ThreadPoolExecutor

import pytest
from sqlalchemy import event, update

from mallorn.core.errors import Conflict, NotFound
from mallorn.core.outcomes import LEFT_UNBUILT, NOT_COMPILED, Outcome
from mallorn.core.states import JobState, RoundState, Waiting
from mallorn.core.values.job import JobStep
from mallorn.db.repositories.claim_and_release_work import WorkItems
from mallorn.db.repositories.dataset_statistics import Statistics
from mallorn.db.repositories.decision_log import DecisionLog
from mallorn.db.repositories.job_progress import progress
from mallorn.db.repositories.jobs import JobFilter, Jobs
from mallorn.db.repositories.leases import MAX_DEATHS, Leases
from mallorn.db.repositories.measurements import Measurements
from mallorn.db.repositories.rounds import Rounds
from mallorn.db.repositories.tasks import NewTask, Tasks
from mallorn.db.repositories.workers import Activity
from mallorn.db.tables import Job
from tests.fixtures.rows import Rows, new_job
from tests.fixtures.stored import active_jobs

STEP = JobStep(name="tasks are checked", done=1, total=2)


@pytest.fixture
def jobs(rows):
    """Calls a method of Jobs in a transaction of its own."""

    class Calls:
        def __getattr__(self, name):
            return lambda *args, **kw: rows.write(lambda session: getattr(Jobs(session), name)(*args, **kw))

    return Calls()


def test_the_same_request_twice_is_one_job(jobs):
    asked = new_job(idempotency_key="k", request_hash="h")
    first, new = jobs.create(asked)
    again, repeated = jobs.create(asked)
    assert (first.id, new, repeated) == (again.id, True, False)


def test_a_key_used_for_another_request_is_a_conflict(jobs):
    first, _ = jobs.create(new_job(idempotency_key="k", request_hash="h"))
    with pytest.raises(Conflict, match=first.id):
        jobs.create(new_job(idempotency_key="k", request_hash="other"))


def test_keys_belong_to_their_owner_and_no_key_never_matches(jobs):
    asked = [
        new_job(owner, idempotency_key=key)
        for owner, key in (("ada", "k"), ("bob", "k"), ("ada", None), ("ada", None))
    ]
    assert len({jobs.create(new)[0].id for new in asked}) == 4


def test_requests_that_race_make_one_job(rows, jobs):
    asked = new_job(idempotency_key="k", request_hash="h")
    with ThreadPoolExecutor(4) as pool:
        made = list(pool.map(lambda _: jobs.create(asked), range(4)))
    assert len({job.id for job, _ in made}) == 1
    assert sum(new for _, new in made) == 1


def test_another_owners_job_is_not_found(rows, jobs):
    for act in (jobs.get, jobs.pause, jobs.cancel, jobs.resume):
        with pytest.raises(NotFound) as caught:
            act(rows.job_id, "bob")
        assert caught.value.hint == "mallorn jobs"
    assert jobs.get(rows.job_id, None).state == JobState.TUNING


def test_a_job_is_found_by_the_beginning_of_its_id(rows, jobs):
    assert jobs.find(rows.job_id, "ada").id == rows.job_id
    assert jobs.find(rows.job_id[:6], "ada").id == rows.job_id
    for wrong in (f"{rows.job_id}0", "%", "_"):
        with pytest.raises(NotFound, match=f"no job {wrong}"):
            jobs.find(wrong, "ada")
    with pytest.raises(NotFound):
        jobs.find(rows.job_id[:6], "bob")


def test_a_beginning_of_several_ids_lists_them(rows, jobs):
    others = [jobs.create(new_job())[0].id for _ in range(16)]  # 17 ids: two begin with the same digit
    ids = [rows.job_id, *others]
    first = next(digit for digit in "0123456789abcdef" if sum(found.startswith(digit) for found in ids) > 1)
    with pytest.raises(Conflict, match=f"several ids begin with {first}: ") as caught:
        jobs.find(first, "ada")
    assert sum(found in caught.value.message for found in ids) >= 2
    assert caught.value.hint.startswith(f"mallorn show {first}")


def test_jobs_are_listed_newest_first_in_pages_of_one_owner(rows, jobs):
    mine = {rows.job_id, *(jobs.create(new_job())[0].id for _ in range(4))}
    jobs.create(new_job("bob"))
    first = jobs.list("ada", limit=3)
    rest = jobs.list("ada", cursor=first.cursor, limit=3)
    listed = [*first.items, *rest.items]
    assert {job.id for job in listed} == mine
    assert len(listed) == len(mine)
    born = [job.created_at for job in listed]  # SQLite's clock counts in milliseconds: some are twins
    assert born == sorted(born, reverse=True)
    assert len(jobs.list(None).items) == 6
    assert [job.id for job in jobs.list("ada", JobFilter(states=[JobState.TUNING])).items] == [rows.job_id]


def test_a_move_happens_only_from_the_states_it_names(rows, jobs):
    assert not jobs.move_to_state(rows.job_id, [JobState.QUEUED], JobState.IMPORTING)
    assert jobs.move_to_state(rows.job_id, [JobState.TUNING], JobState.FINISHING, step=STEP)
    job = jobs.get(rows.job_id, None)
    assert (job.state, job.step, job.finished_at) == (JobState.FINISHING, STEP, None)
    jobs.move_to_state(rows.job_id, [JobState.FINISHING], JobState.DONE)
    job = jobs.get(rows.job_id, None)
    assert job.created_at <= job.started_at <= job.finished_at


@pytest.mark.parametrize("step", [STEP, None])
def test_a_step_that_is_set_again_writes_no_row(rows, jobs, step):
    jobs.set_waiting(rows.job_id, Waiting("waits for a device", "mallorn device"))
    written = []

    def count(connection, cursor, statement, *_):
        if statement.startswith("UPDATE jobs"):
            written.append(cursor.rowcount)

    event.listen(rows.database.engine, "after_cursor_execute", count)
    for _ in range(3):
        jobs.set_step(rows.job_id, step)
    event.remove(rows.database.engine, "after_cursor_execute", count)
    assert written == [1, 0, 0]
    job = jobs.get(rows.job_id, None)
    assert (job.step, job.waiting_because, job.hint) == (step, "", "")


@pytest.mark.parametrize("state", [JobState.QUEUED, JobState.IMPORTING, JobState.TUNING])
def test_a_paused_job_goes_on_where_it_was(rows, jobs, state):
    jobs.move_to_state(rows.job_id, [JobState.TUNING], state)
    assert jobs.pause(rows.job_id, "ada").state == JobState.PAUSED
    assert rows.read(active_jobs) == []
    assert jobs.resume(rows.job_id, "ada").state == state


def test_a_finished_job_goes_on_only_with_more_trials(rows, jobs):
    jobs.move_to_state(rows.job_id, [JobState.TUNING], JobState.DONE)
    with pytest.raises(Conflict, match="is done"):
        jobs.resume(rows.job_id, "ada")
    job = jobs.resume(rows.job_id, "ada", more_trials=16)
    assert (job.state, job.trials, job.finished_at) == (JobState.TUNING, 80, None)


def test_a_job_without_a_limit_of_trials_is_given_one_on_top_of_what_it_spent(rows, jobs):
    job_id = rows.write(lambda session: rows.add_job(session, "ada", ("w0",)))
    unlimited = update(Job).where(Job.id == job_id).values(trials=None, minutes=60.0)
    rows.write(lambda session: session.execute(unlimited))
    measured(rows, "w0", [rows.ok(0, 20.0), rows.ok(1, 10.0)], job_id)
    jobs.pause(job_id, "ada")
    assert jobs.resume(job_id, "ada", more_trials=8).trials is None
    jobs.move_to_state(job_id, [JobState.TUNING], JobState.DONE)
    assert jobs.resume(job_id, "ada", more_trials=16).trials == 2 + 16


def test_a_job_that_decides_for_itself_counts_from_then_on_where_trials_are_asked_for(rows, jobs):
    assert not jobs.get(rows.job_id, "ada").has_auto_budget
    jobs.pause(rows.job_id, "ada")
    assert jobs.resume(rows.job_id, "ada", auto=True).has_auto_budget
    measured(rows, "w0", [rows.ok(0, 20.0), rows.ok(1, 10.0)], rows.job_id)
    jobs.pause(rows.job_id, "ada")
    assert jobs.resume(rows.job_id, "ada", more_trials=8).trials == 2 + 8


def test_a_done_job_goes_on_by_itself_unless_it_ended_by_itself(rows, jobs):
    jobs.move_to_state(rows.job_id, [JobState.TUNING], JobState.DONE)
    job = jobs.resume(rows.job_id, "ada", auto=True)
    assert (job.state, job.trials, job.minutes) == (JobState.TUNING, None, None)
    jobs.move_to_state(rows.job_id, [JobState.TUNING], JobState.DONE)
    with pytest.raises(Conflict, match="is done"):
        jobs.resume(rows.job_id, "ada", auto=True)


def test_a_job_that_failed_in_its_finish_is_finished_again(rows, jobs):
    jobs.move_to_state(rows.job_id, [JobState.TUNING], JobState.FINISHING)
    jobs.move_to_state(rows.job_id, [JobState.FINISHING], JobState.FAILED, "no room")
    job = jobs.resume(rows.job_id, "ada")
    assert (job.state, job.ended_because, job.finished_at, job.trials) == (JobState.FINISHING, "", None, 64)


def test_a_job_whose_worker_died_in_its_finish_is_finished_again(rows, jobs):
    jobs.move_to_state(rows.job_id, [JobState.TUNING], JobState.FINISHING)
    for _ in range(MAX_DEATHS):
        jobs.claim_stage(rows.job_id, JobState.FINISHING, "w", -1)
        (lost,) = rows.write(lambda session: WorkItems(session).end_expired_leases(rows.job_id))
    assert lost.is_given_up
    assert jobs.resume(rows.job_id, "ada").state == JobState.FINISHING
    assert rows.read(lambda session: Leases(session).get(lost.hold.item).deaths) == 0


def test_a_job_that_failed_in_its_finish_tunes_on_with_more_trials(rows, jobs):
    jobs.move_to_state(rows.job_id, [JobState.TUNING], JobState.FINISHING)
    jobs.move_to_state(rows.job_id, [JobState.FINISHING], JobState.FAILED)
    job = jobs.resume(rows.job_id, "ada", more_trials=16)
    assert (job.state, job.trials) == (JobState.TUNING, 80)


def test_a_done_job_is_finished_again_for_what_its_finish_left_out(rows, jobs):
    jobs.move_to_state(rows.job_id, [JobState.TUNING], JobState.DONE)
    jobs.store_report_columns(
        rows.job_id, report={"skipped_steps": [{"step": "run", "reason": "it died", "hint": ""}]}
    )
    assert jobs.resume(rows.job_id, "ada").state == JobState.FINISHING


@pytest.mark.parametrize("state", [JobState.IMPORTING, JobState.TUNING])
def test_a_job_that_failed_before_its_finish_stays_failed(rows, jobs, state):
    jobs.move_to_state(rows.job_id, [JobState.TUNING], state)
    jobs.move_to_state(rows.job_id, [state], JobState.FAILED)
    for trials in (0, 16):
        with pytest.raises(Conflict, match="is failed"):
            jobs.resume(rows.job_id, "ada", trials)


def test_a_cancelled_job_stays_cancelled(rows, jobs):
    assert jobs.cancel(rows.job_id, "ada").finished_at is not None
    for act in (jobs.cancel, jobs.pause, jobs.resume):
        with pytest.raises(Conflict, match="is cancelled"):
            act(rows.job_id, "ada")


def test_the_first_measuring_context_of_a_job_stays(rows, jobs):
    assert jobs.bind_context(rows.job_id, rows.context_id) == rows.context_id
    assert jobs.bind_context(rows.job_id, rows.context_id + 1) == rows.context_id


def measured(rows, workload, batch, job_id=""):
    def act(session):
        round_id = rows.add_round(session, workload, job_id, size=len(batch))
        hold = Rounds(session).claim(round_id, "w", 60)
        Measurements(session).add_trials(hold, batch)
        Rounds(session).close(hold, RoundState.DONE)

    rows.write(act)


def progress_of_job(rows):
    return rows.read(lambda session: progress(session, Jobs(session).get(rows.job_id, None)))


def test_what_was_left_unbuilt_is_a_trial_and_no_failure(rows, jobs):
    refusal = {"outcome": Outcome.BUILD_ERROR, "run_us": (), "error": f"{NOT_COMPILED}in 900 places"}
    rows.measured_round(rows.ok(0, 20.0), rows.failed(1), rows.ok(2, **refusal), rows.ok(3, **refusal))
    found = progress_of_job(rows)
    assert (found.spent, found.failures, found.unbuilt_candidates) == (4, {"build_error": 1}, 2)
    assert found.outcomes == {"ok": 1, "build_error": 1, LEFT_UNBUILT: 2}
    assert rows.read(lambda session: Tasks(session).summaries(rows.job_id))[0].failures == 1
    assert rows.read(lambda session: DecisionLog(session).list(rows.job_id)).items[0].failures == 1
    rounds = rows.read(lambda session: Activity(session).rounds(None, 3600.0, 9))
    assert [each.failures for each in rounds] == [1]
    stats = rows.read(lambda session: Statistics(session).of("ada"))
    assert {each.name: each.count for each in stats.outcomes} == found.outcomes


def test_progress_counts_trials_failures_and_bests(rows, jobs):
    measured(rows, "w0", [rows.ok(0, 20.0), rows.ok(1, 10.0), rows.failed(2)])
    rows.measured_round(rows.failed(0, Outcome.RUN_TIMEOUT), workload="w1")
    found = progress_of_job(rows)
    assert (found.spent, found.open_candidates) == (4, 7)
    assert found.failures == {"build_error": 1, "run_timeout": 1}
    tasks = rows.read(lambda session: Tasks(session).list(rows.job_id))
    assert found.best_us == {tasks[0].id: 10.0}


def summaries(rows: Rows, job_id: str = ""):
    return rows.read(lambda session: Tasks(session).summaries(job_id or rows.job_id))


def test_a_summary_adds_up_a_tasks_rounds(rows):
    measured(rows, "w0", [rows.ok(0, 20.0), rows.failed(1)])
    measured(rows, "w0", [rows.ok(0, 30.0, decisions=(9, 9))])
    rows.write(lambda session: rows.add_round(session, "w1"))
    first, second = summaries(rows)
    assert (first.best_us, first.trials, first.failures, first.in_flight) == (20.0, 3, 1, 0)
    assert (second.best_us, second.trials, second.failures, second.in_flight) == (None, 0, 0, 8)
    assert (first.workload_key, first.weight, second.weight) == ("w0", 1, 2)


def test_what_another_job_measured_counts_for_a_tasks_best_alone(rows):
    measured(rows, "w0", [rows.ok(0, 20.0)])
    other = rows.write(lambda session: rows.add_job(session, "bob", ("w0", "w1")))
    measured(rows, "w0", [rows.ok(0, 15.0, decisions=(9, 9))], other)
    mine, theirs = summaries(rows)[0], summaries(rows, other)[0]
    assert (mine.best_us, mine.trials) == (15.0, 1)
    assert (theirs.best_us, theirs.trials) == (15.0, 1)


def test_times_of_another_context_are_no_bests_of_a_job_that_has_one(rows, jobs):
    measured(rows, "w0", [rows.ok(0, 20.0), rows.ok(1, 5.0, context_id=None)])
    assert summaries(rows)[0].best_us == 5.0
    jobs.bind_context(rows.job_id, rows.context_id)
    assert summaries(rows)[0].best_us == 20.0
    assert list(progress_of_job(rows).best_us.values()) == [20.0]


def test_a_second_import_of_a_job_adds_no_tasks(rows):
    tasks = rows.read(lambda session: Tasks(session).list(rows.job_id))
    again = [*map(_as_new, tasks)]
    rows.write(lambda session: Tasks(session).add_many(rows.job_id, again))
    assert len(rows.read(lambda session: Tasks(session).list(rows.job_id))) == len(tasks)


def _as_new(task):
    return NewTask(task.index, task.name, task.weight, task.workload_id, task.family)


def test_retirement_is_the_planners_word(rows):
    ids = [task.id for task in summaries(rows)]
    rows.write(lambda session: Tasks(session).retire({ids[1]: "hopeless"}))
    assert [task.retired for task in summaries(rows)] == ["", "hopeless"]
