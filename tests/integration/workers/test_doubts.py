"""Figures of a busy host do not stay for good: trials that beat them have the machine measured again."""

import pytest
from sqlalchemy import update

from mallorn.core.errors import Unavailable
from mallorn.core.outcomes import Outcome
from mallorn.core.states import JobState
from mallorn.core.values.machine import Machine
from mallorn.db.repositories.devices import Devices
from mallorn.db.repositories.jobs import Jobs
from mallorn.db.tables import Device, Workload
from mallorn.workers.hardware_probe.run import BEATEN, SURE_SEC, remeasure_if_beaten
from mallorn.workers.host.code_digest import current_code_name
from tests.fixtures.workshop import Workshop
from tests.integration.workers.test_machines import HERE, LOST, Calls, found, like, machine_of, measured

__all__ = ["measured"]  # a fixture
FLOPS = 1e6
TRIAL_US = 10.0  # which are 100 GFLOP/s


def computing(gflops: float) -> Machine:
    return HERE.model_copy(update={"gflops": {"float32": gflops}})


def tuned(workshop: Workshop, machine: Machine, ago_sec: float = 2 * SURE_SEC) -> str:
    """A job whose best trial takes so long, on a machine that was measured so long ago."""
    workshop.bench.times = lambda _us: TRIAL_US
    job = workshop.job(("w0",), trials=8, flops=FLOPS)
    known = workshop.write(
        lambda session: Devices(session).store_machine(like(workshop), machine, "", current_code_name())
    )
    earlier = known.model_copy(update={"probed_at": known.probed_at - ago_sec})
    args = {"args": [["TENSOR", "float32", [64, 64]]]}
    workshop.write(lambda session: session.execute(update(Device).values(machine=earlier)))
    workshop.write(lambda session: session.execute(update(Workload).values(args=args)))
    workshop.work(job)
    workshop.write(lambda session: Jobs(session).move_to_state(job, [JobState.FINISHING], JobState.DONE))
    return job


@pytest.mark.parametrize(("peak", "again"), [(100.0 / BEATEN / 1.01, 1), (100.0 / BEATEN * 1.01, 0)])
def test_a_trial_above_the_peak_has_the_machine_measured_again(
    workshop: Workshop, measured: Calls, peak: float, again: int
) -> None:
    job = tuned(workshop, computing(peak))
    remeasure_if_beaten(workshop, job)
    assert len(measured) == again


def test_a_job_keeps_the_machine_that_was_doubted(workshop: Workshop, measured: Calls) -> None:
    slow = computing(10.0)
    job = tuned(workshop, slow)
    remeasure_if_beaten(workshop, job)
    assert found(workshop) == HERE
    assert machine_of(workshop, job) == slow


def test_a_peak_so_low_that_honest_times_are_refused_is_measured_again(
    workshop: Workshop, measured: Calls
) -> None:
    job = tuned(workshop, computing(1.0))
    assert {row.outcome for row in workshop.rows(job_id=job)} == {Outcome.RUN_ERROR}
    remeasure_if_beaten(workshop, job)
    assert len(measured) == 1
    assert found(workshop) == HERE


def test_what_was_just_measured_is_not_doubted(workshop: Workshop, measured: Calls) -> None:
    job = tuned(workshop, computing(1.0))
    for _ in range(3):
        remeasure_if_beaten(workshop, job)
    assert len(measured) == 1
    remeasure_if_beaten(workshop, tuned(workshop, computing(1.0), ago_sec=SURE_SEC / 2))
    assert len(measured) == 1


@pytest.mark.parametrize("answer", [computing(1.0), LOST])
def test_a_machine_stays_what_it_was_where_nothing_better_is_measured(
    workshop: Workshop, measured: Calls, answer: Machine | Unavailable
) -> None:
    measured.answer = answer
    job = tuned(workshop, computing(2.0))
    remeasure_if_beaten(workshop, job)
    assert found(workshop) == computing(2.0)


def test_while_a_job_goes_on_nothing_is_measured(workshop: Workshop, measured: Calls) -> None:
    job = tuned(workshop, computing(1.0))
    workshop.write(lambda session: Jobs(session).move_to_state(job, [JobState.DONE], JobState.FINISHING))
    remeasure_if_beaten(workshop, job)
    assert not measured


def test_types_of_unknown_peak_and_jobs_without_a_device_tell_nothing(
    workshop: Workshop, measured: Calls
) -> None:
    job = tuned(workshop, HERE.model_copy(update={"gflops": {"int8": 1.0}}))
    remeasure_if_beaten(workshop, job)
    remeasure_if_beaten(workshop, workshop.job(measurer="simulated"))
    assert not measured
