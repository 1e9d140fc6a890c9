"""Jobs whose kind of hardware is not installed any more: they wait, and stop nobody else."""

import pytest
from sqlalchemy import update

from mallorn.core.errors import MissingPackage
from mallorn.core.states import JobState
from mallorn.core.targets import Target
from mallorn.db.tables import TargetRow
from tests.fixtures.coordinator import Coordinator, OwnedRows
from tests.fixtures.database import BOTH
from tests.fixtures.workshop import TARGET, Workshop

VULKAN = Target('{"kind":"vulkan","max_num_threads":256}')
REMOVED = Target('{"kind":"llvm","mtriple":"s390x-linux-gnu","num-cores":2}')
REASONS = {VULKAN: "unknown target kind 'vulkan'", REMOVED: "no kind of hardware is installed for s390x"}
EACH = pytest.mark.parametrize("target", REASONS, ids=["vulkan", "s390x"])


def become(target: Target, target_id: int) -> object:
    """What stores another target in place of one, as an earlier version or a package stored it."""
    row = update(TargetRow).where(TargetRow.id == target_id)
    return row.values(text=target.text, key=target.key)


def take_kind_away(workshop: Workshop, target: Target) -> None:
    workshop.write(lambda session: session.execute(become(target, workshop.target_id)))


@EACH
def test_a_stored_target_names_the_kind_that_is_missing(target: Target) -> None:
    with pytest.raises(MissingPackage, match=REASONS[target]) as refused:
        _ = target.hardware
    assert refused.value.hint


@BOTH
@EACH
def test_its_job_waits_until_the_kind_is_installed_again(workshop: Workshop, target: Target) -> None:
    job, other = workshop.job(), workshop.job()
    take_kind_away(workshop, target)
    for each in (job, other):
        assert workshop.plan(each) == []
        assert workshop.state(each) == JobState.TUNING
        assert REASONS[target] in workshop.explanation(each)
    take_kind_away(workshop, TARGET)
    assert workshop.plan(job) != []


@EACH
def test_a_worker_without_the_kind_leaves_its_work_to_others(workshop: Workshop, target: Target) -> None:
    job = workshop.job()
    round_id = workshop.next_round(job)
    take_kind_away(workshop, target)
    workshop.run(round_id)
    assert workshop.state(job) == JobState.TUNING
    assert workshop.queued(job) == [round_id, *workshop.queued(job)[1:]]
    assert REASONS[target] in workshop.explanation(job)


@EACH
def test_lists_and_pages_show_its_job_and_its_owner_steers_it(
    coordinator: Coordinator, owned: OwnedRows, target: Target
) -> None:
    owned.write(lambda session: session.execute(become(target, owned.target_id)))
    job = f"/jobs/{owned.job_id}"
    for page in ("/jobs", job, "/devices", "/workers", "/schedules"):
        answer = coordinator.http.get(page)
        assert answer.status_code == 200, f"{page}: {answer.text}"
    for action in ("pause", "resume", "cancel"):
        answer = coordinator.http.post(f"{job}/{action}")
        assert answer.status_code == 200, f"{action}: {answer.text}"


@EACH
def test_a_finish_is_resumed_although_nobody_can_be_woken_for_it(
    coordinator: Coordinator, target: Target
) -> None:
    coordinator.parts.waker.wake_for_job(JobState.FINISHING, "a job", target.text)
