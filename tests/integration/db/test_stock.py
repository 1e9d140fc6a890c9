"""What stock's tuner found is told by task, apart from what datasets of Mallorn brought."""

from mallorn.core.outcomes import Outcome
from mallorn.db.repositories.tasks import Stock, Tasks
from tests.fixtures.brought import ELSEWHERE, bring
from tests.fixtures.rows import Rows


def told(rows: Rows, job_id: str = "") -> dict[str, float]:
    """By workload, so that a test need not know ids."""

    job_id = job_id or rows.job_id
    found = rows.read(lambda session: Stock(session).best_us_by_task(job_id))
    tasks = rows.read(lambda session: Tasks(session).list(job_id))
    return {task.name: found[task.id] for task in tasks if task.id in found}


def test_nothing_is_told_where_no_log_was_brought_in(rows):
    bring(rows, "w0", 5.0, ELSEWHERE)
    assert told(rows) == {}


def test_it_is_the_least_time_of_the_logs_on_the_jobs_target(rows):
    for latency_us in (30.0, 20.0):
        bring(rows, "w0", latency_us)
    bring(rows, "w0", 10.0, here=False)
    bring(rows, "w0", 5.0, ELSEWHERE)
    assert told(rows) == {"w0": 20.0}


def test_it_is_no_best_of_the_task(rows):
    bring(rows, "w0", 20.0)
    assert rows.read(lambda session: Tasks(session).summaries(rows.job_id))[0].best_us is None


def test_every_job_of_the_workload_is_told(rows):
    bring(rows, "w1", 20.0)
    other = rows.write(lambda session: rows.add_job(session, "bob", ("w1",)))
    assert told(rows, other) == told(rows) == {"w1": 20.0}


def test_a_candidate_that_was_found_wrong_here_counts_no_more(rows):
    bring(rows, "w0", 20.0)
    bring(rows, "w0", 30.0)
    wrong = rows.failed(0, Outcome.WRONG_RESULT, decisions=(20, 2))
    rows.measured_round(wrong)
    assert told(rows) == {"w0": 30.0}
