"""A machine is measured once, by one worker, and a job keeps what it was proposed for."""

from dataclasses import asdict
from functools import partial
from types import SimpleNamespace

import pytest
from sqlalchemy.orm import Session

from mallorn.core.errors import Unavailable
from mallorn.core.states import WorkKind
from mallorn.core.values.fleet import DeviceMachine
from mallorn.core.values.machine import Machine, assume_typical_cpu
from mallorn.core.virtual_devices import add_virtual_device
from mallorn.db.repositories.devices import Devices, MachineKey, SeenDevice
from mallorn.db.repositories.jobs import Jobs
from mallorn.db.repositories.leases import MAX_DEATHS, Leases, LeaseToken, WorkItem
from mallorn.db.repositories.targets import Targets
from mallorn.db.tables import Device
from mallorn.searchers.space import Candidate
from mallorn.workers.finish import final_candidates
from mallorn.workers.hardware_probe import run as probing
from mallorn.workers.hardware_probe.run import PROBES_SEC
from mallorn.workers.host.code_digest import current_code_name
from mallorn.workers.measure.roofline_check import REFUSED
from mallorn.workers.measure.tvm_space import TvmSpace
from tests.fixtures.tuned_jobs import untuned
from tests.fixtures.work import finish
from tests.fixtures.workshop import ENDPOINT, TARGET, Workshop

HERE = assume_typical_cpu(cores=2, lanes=8).model_copy(update={"measured": True})
LOST = Unavailable("the device was lost")


class Calls(list[object]):
    """The targets that were measured; `answer` is the machine that was found, or an error to raise."""

    answer: Machine | Unavailable = HERE


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> Calls:
    """What is measured, instead of a device."""
    calls = Calls()

    def measure(runtime: object, target: object, like: object) -> tuple[object, Machine]:
        calls.append(target)
        if isinstance(calls.answer, Unavailable):
            raise calls.answer
        return ENDPOINT, calls.answer

    monkeypatch.setattr(probing, "probe_device_machine", measure)
    return calls


def machine_of(workshop: Workshop, job: str) -> Machine | None:
    machine: Machine | None = workshop.read(lambda session: Jobs(session).get(job, None).machine)
    return machine


def known(workshop: Workshop, name: str = ENDPOINT.name) -> DeviceMachine | None:
    found: Device = workshop.read(lambda session: Devices(session).get(name))
    return found.machine


def found(workshop: Workshop) -> Machine | None:
    machine = known(workshop)
    assert machine is not None
    return machine.machine


def why(workshop: Workshop) -> str:
    machine = known(workshop)
    assert machine is not None
    return machine.reason


def like(workshop: Workshop) -> MachineKey:
    return MachineKey(workshop.target_id, ENDPOINT.host_class, ENDPOINT.tvm_version, ENDPOINT.threads)


def item(workshop: Workshop) -> WorkItem:
    return WorkItem(WorkKind.MACHINE, "/".join(map(str, asdict(like(workshop)).values())))


def planned(workshop: Workshop) -> str:
    """A job that is bound to its measuring context."""
    job = workshop.job()
    workshop.plan(job)
    return job


def _lose(session: Session, hold: LeaseToken) -> None:
    Leases(session).record_loss(hold, MAX_DEATHS, is_death=True)


def first_round(workshop: Workshop, job: str) -> None:
    workshop.run(workshop.next_round(job))


def test_the_first_round_measures_and_all_jobs_there_use_it(workshop: Workshop, measured: Calls) -> None:
    for _ in range(2):
        job = workshop.job()
        first_round(workshop, job)
        assert machine_of(workshop, job) == HERE
    assert len(measured) == 1
    assert found(workshop) == HERE


def test_a_device_that_comes_is_measured_before_there_is_a_job(workshop: Workshop, measured: Calls) -> None:
    workshop.job()
    for _ in range(2):
        probing.measure_device(workshop, ENDPOINT.name)
    probing.measure_device(workshop, "gone")
    assert len(measured) == 1
    assert found(workshop) == HERE


def test_a_machine_that_cannot_be_measured_is_assumed_and_says_why(
    workshop: Workshop, measured: Calls
) -> None:
    measured.answer = LOST
    job = workshop.job()
    first_round(workshop, job)
    assert machine_of(workshop, job) == assume_typical_cpu(cores=2, lanes=16)
    assert (found(workshop), why(workshop)) == (None, "the device was lost")
    assert workshop.rows()


def test_a_job_keeps_the_machine_of_its_first_round(workshop: Workshop, measured: Calls) -> None:
    job = workshop.job()
    first_round(workshop, job)
    faster = HERE.model_copy(update={"core_gflops": 1000.0})
    workshop.write(
        lambda session: Devices(session).store_machine(like(workshop), faster, "", current_code_name())
    )
    first_round(workshop, job)
    assert machine_of(workshop, job) == HERE


def test_what_another_worker_measures_is_waited_for(
    workshop: Workshop, measured: Calls, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = planned(workshop)
    hold = workshop.write(lambda session: Leases(session).claim(item(workshop), "other", 60))
    assert hold is not None

    def other_is_done(_seconds: float) -> None:
        workshop.write(
            lambda session: Devices(session).store_machine(like(workshop), HERE, "", current_code_name())
        )

    monkeypatch.setattr("mallorn.workers.hardware_probe.run.time.sleep", other_is_done)
    probing.ensure_machine(workshop, job)
    assert machine_of(workshop, job) == HERE
    assert not measured


def test_a_machine_that_kills_who_measures_it_is_left_alone(workshop: Workshop, measured: Calls) -> None:
    job = planned(workshop)
    for _ in range(3):
        hold = workshop.write(lambda session: Leases(session).claim(item(workshop), "other", 60))
        workshop.write(partial(_lose, hold=hold))
    probing.ensure_machine(workshop, job)
    assert not measured
    assert "died 3 times" in why(workshop)
    assert machine_of(workshop, job) == assume_typical_cpu(cores=2, lanes=16)


def test_a_worker_that_died_while_it_measured_has_a_successor(workshop: Workshop, measured: Calls) -> None:
    job = planned(workshop)
    workshop.write(lambda session: Leases(session).claim(item(workshop), "other", -1))
    probing.ensure_machine(workshop, job)
    assert machine_of(workshop, job) == HERE


def test_who_answers_from_what_is_known_measures_no_machine(workshop: Workshop, measured: Calls) -> None:
    job, after = planned(workshop), planned(workshop)
    probing.ensure_machine(workshop, job, measuring=False)
    assumed_machine = machine_of(workshop, job)
    assert assumed_machine is not None
    assert not assumed_machine.measured
    assert measured == []
    probing.ensure_machine(workshop, planned(workshop))
    probing.ensure_machine(workshop, after, measuring=False)
    assert machine_of(workshop, after) == HERE


def test_who_measures_nothing_takes_the_machine_of_any_device_of_the_target(
    workshop: Workshop, measured: Calls
) -> None:
    """Also of one that is gone: a job without a context still has schedules made for that machine."""
    probing.ensure_machine(workshop, planned(workshop))
    workshop.fleet.devices = lambda _target=None: []
    job = workshop.job()
    assert workshop.read(lambda session: Jobs(session).get(job, None).context_id) is None
    probing.ensure_machine(workshop, job, measuring=False)
    assert machine_of(workshop, job) == HERE


def test_another_version_of_tvm_is_another_machine(workshop: Workshop, measured: Calls) -> None:
    workshop.job()
    probing.measure_device(workshop, ENDPOINT.name)
    seen = SeenDevice(target_id=workshop.target_id, **(asdict(ENDPOINT) | {"tvm_version": "0.28.0"}))
    workshop.write(lambda session: Devices(session).record_seen(seen))
    assert known(workshop) is None
    workshop.see_device()
    assert known(workshop) is None, "what was known went with the row; it is measured again"


OLD_CODE = "0.27.0+before"


@pytest.mark.parametrize("peak", [1.0, 1e6], ids=["lower", "higher"])
def test_what_other_code_measured_is_measured_anew_whether_it_was_less_or_more(
    workshop: Workshop, measured: Calls, peak: float
) -> None:
    other = HERE.model_copy(update={"gflops": {"float32": peak}})
    job = workshop.job()
    workshop.write(lambda session: Devices(session).store_machine(like(workshop), other, "", OLD_CODE))
    first_round(workshop, job)
    assert len(measured) == 1
    assert machine_of(workshop, job) == found(workshop) == HERE


def test_what_other_code_measured_is_an_assumption_where_it_cannot_be_measured_now(
    workshop: Workshop, measured: Calls
) -> None:
    measured.answer = LOST
    workshop.see_device()
    workshop.write(lambda session: Devices(session).store_machine(like(workshop), HERE, "", OLD_CODE))
    for _ in range(2):
        job = workshop.job()
        first_round(workshop, job)
        assert machine_of(workshop, job) == HERE.model_copy(update={"measured": False})
    assert len(measured) == 1, "it is not tried for every job"
    assert (found(workshop), why(workshop)) == (HERE, "the device was lost")
    assert probing.load_measured_machine(workshop, job) is None, "no report compares with its peak"


def test_a_second_device_of_the_kind_is_known_at_once(workshop: Workshop, measured: Calls) -> None:
    workshop.job()
    probing.measure_device(workshop, ENDPOINT.name)
    seen = SeenDevice(target_id=workshop.target_id, **(asdict(ENDPOINT) | {"name": "second"}))
    workshop.write(lambda session: Devices(session).record_seen(seen))
    assert known(workshop, "second") == known(workshop)


def test_a_job_on_a_virtual_device_has_no_machine(workshop: Workshop, measured: Calls) -> None:
    simulated = add_virtual_device(TARGET, "simulated")
    workshop.target_id = workshop.write(lambda session: Targets(session).ensure(simulated).id)
    job = workshop.job(measurer="simulated")
    probing.ensure_machine(workshop, job)
    assert machine_of(workshop, job) is None
    assert not measured


def without_trials(workshop: Workshop) -> str:
    job: str = untuned(workshop)  # type: ignore[no-untyped-call]
    return job


def schedules_for(monkeypatch: pytest.MonkeyPatch) -> list[Machine]:
    """What defaults are made for, from now on."""
    machines: list[Machine] = []

    class Noted(TvmSpace):
        def likeliest(self, count: int) -> list[Candidate]:
            machines.append(self.machine)
            return super().likeliest(count)

    monkeypatch.setattr(final_candidates, "TvmSpace", Noted)
    return machines


@pytest.mark.usefixtures("exported")
def test_the_defaults_of_a_job_without_trials_are_made_for_the_measured_machine(
    workshop: Workshop, measured: Calls, monkeypatch: pytest.MonkeyPatch
) -> None:
    job, machines = without_trials(workshop), schedules_for(monkeypatch)
    finish(workshop, job)
    assert machines == [HERE]
    assert machine_of(workshop, job) == HERE


@pytest.mark.usefixtures("exported")
def test_a_job_without_trials_waits_no_longer_than_probes_take(
    workshop: Workshop, measured: Calls, monkeypatch: pytest.MonkeyPatch
) -> None:
    job, machines = without_trials(workshop), schedules_for(monkeypatch)
    assert workshop.write(lambda session: Leases(session).claim(item(workshop), "other", 60))
    clock = iter([0.0, PROBES_SEC - 1, PROBES_SEC])
    time = SimpleNamespace(monotonic=lambda: next(clock), sleep=lambda _sec: None)
    monkeypatch.setattr(probing, "time", time)
    finish(workshop, job)
    assert machines == [assume_typical_cpu(cores=2, lanes=16)]
    assert not measured


def test_what_no_such_machine_computes_so_fast_wins_nothing(
    workshop: Workshop, measured: Calls, exported: object
) -> None:
    """Every fifth answer of the device is a hundred times too fast."""
    job = workshop.job(("w0",), trials=32, flops=1e9)
    runs: list[float] = []

    def lie(latency_us: float) -> float:
        runs.append(latency_us)
        return latency_us / 1e6 if len(runs) % 5 == 0 else 1e4 + latency_us

    workshop.bench.times = lie
    workshop.work(job)
    rows = workshop.rows(job_id=job)
    liars = [row for row in rows if row.outcome == "run_error"]
    assert len(liars) == sum((row.error or "").startswith(REFUSED) for row in rows) > 0
    assert all(row.latency_us is None or row.latency_us > 1e4 for row in rows)
