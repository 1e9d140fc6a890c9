"""The crowd that the planner is put under load with."""

from collections import Counter

from benchmarks.sim.crowd import Crowd, Load
from benchmarks.sim.scale import MEMORY_SAMPLES, measure

SMALL = Load(jobs=3, tasks=4, devices=6, decisions=100)


def test_as_many_decisions_are_made_as_asked_for_and_memory_is_looked_at_all_along() -> None:
    strain = measure(SMALL, "round-robin")
    assert len(strain.decision_ms) == SMALL.decisions
    assert len(strain.rss_mib) == MEMORY_SAMPLES
    assert strain.percentile_ms(50) <= strain.percentile_ms(99)


def test_jobs_that_end_make_room_for_new_ones_with_tasks_of_their_own() -> None:
    crowd = Crowd(SMALL, "round-robin")
    seen = {id(job): job for job in crowd.jobs.values()}
    while crowd.finished < 4:
        crowd.step()
        seen |= {id(job): job for job in crowd.jobs.values()}
        assert len(crowd.jobs) == len(crowd.shares) == SMALL.jobs
    tasks = Counter(task.view.id for job in seen.values() for task in job.tasks)
    assert set(tasks.values()) == {1}


def test_no_device_waits_while_tasks_are_free() -> None:
    crowd = Crowd(SMALL, "round-robin")
    assert crowd.devices.idle == 0
    assert crowd.open_rounds == SMALL.devices + 1
