"""Jobs whose device no worker reaches: who gets rounds for them, and what that costs other jobs."""

from mallorn.services.control.plan_job import plan_job
from mallorn.services.control.wait_for_device import USUAL
from tests.integration.control.conftest import Yard


def detached(yard: Yard) -> str:
    return str(yard.workshop.job(["far0", "far1"], 64, policy="round-robin", measurer="detached"))


def carried(yard: Yard, job: str, rounds: int) -> int:
    return int(
        yard.write(lambda session: plan_job(session, job, rounds, (), USUAL, is_carried_in_files=True).opened)
    )


def test_rounds_are_opened_only_for_who_carries_them(yard: Yard) -> None:
    yard.devices(2)
    job = detached(yard)
    assert yard.opened(job) == [], "the devices of its target are not its own"
    assert carried(yard, job, 1) == 1
    assert carried(yard, job, 1) == 1
    assert carried(yard, job, 1) == 0, "each of its tasks has a round"


def test_a_batch_that_nobody_answers_keeps_no_other_job_from_its_tasks(yard: Yard) -> None:
    yard.devices(1)
    far = detached(yard)
    assert carried(yard, far, 2) == 2
    near, other = yard.workshop.job(["far0", "far1"], 64), detached(yard)
    assert len(yard.opened(near)) == 2
    assert carried(yard, other, 2) == 0, "rounds on devices end soon"
    for row in yard.open_rounds():
        if row.job_id == near:
            yard.close(row.id)
    assert carried(yard, other, 2) == 2
    assert carried(yard, far, 2) == 0, "each of its own tasks has a round"


def test_it_waits_for_a_batch_and_for_no_device(yard: Yard) -> None:
    job = detached(yard)
    yard.silence()
    yard.opened(job)
    assert yard.workshop.reason(job) == f"mallorn batch next {job} -o FILE"


def test_what_is_carried_takes_no_device_from_other_jobs(yard: Yard) -> None:
    yard.devices(1)
    far, near = detached(yard), yard.job()
    before = len(yard.opened(near))
    assert before > 0
    for row in yard.open_rounds():
        yard.close(row.id)
    assert carried(yard, far, 2) == 2
    assert len(yard.opened(near)) == before
