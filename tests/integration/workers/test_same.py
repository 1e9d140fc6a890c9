"""The same workload's measurements answer: of this context, of other hosts, of the target's kin."""

import pytest

from db.repositories.tasks import Tasks
from db.repositories.workloads import Workloads
from mallorn.core.values.finish_report import Sure
from tests.fixtures.workshop import TARGET
from workers.zero_shot.answer_source import ZeroShotQuery
from workers.zero_shot.same_workload import SameWorkload


@pytest.fixture
def ask(workshop):
    """The answers on a task that was measured, for a job of some context of the target."""
    job = workshop.job(("w0",), trials=16)
    workshop.work(job)
    [measured] = {row.context_id for row in workshop.rows(job_id=job) if row.context_id is not None}

    def answers(context_id):
        def read(session):
            [task] = Tasks(session).list(job)
            workload = Workloads(session).get(task.workload_id)
            at = measured if context_id == "its own" else context_id
            question = ZeroShotQuery("ada", workload, TARGET, workshop.target_id, at, workshop.space)
            return list(SameWorkload()(session, question))

        return workshop.read(read)

    return answers


def test_what_was_measured_in_the_jobs_own_context_is_sure(ask):
    assert ask("its own")[0].sure == Sure.MEASURED


@pytest.mark.parametrize("context", [999, None], ids=["another", "none yet"])
def test_what_another_host_measured_is_likely_and_says_so(ask, context):
    first, *_ = found = ask(context)
    assert {each.sure for each in found} == {Sure.LIKELY}
    assert first.because == "the fastest that another host measured"
    assert first.candidate == ask("its own")[0].candidate
    assert first.expected_us == ask("its own")[0].expected_us
