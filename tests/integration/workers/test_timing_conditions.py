"""Beside the times of a model stands what disturbed them, and how near the machine's limits they are."""

import pytest

from mallorn.core.values.machine import assume_typical_cpu
from mallorn.db.repositories.devices import Devices, MachineKey
from mallorn.workers.host.code_digest import current_code_name
from mallorn.workers.subprocesses.errors import ChildTimeout
from tests.fixtures.timed_models import MadeUpMeter, finish_anyway, steps
from tests.fixtures.workshop import ENDPOINT


def test_a_quiet_host_needs_no_words(workshop, answers):
    assert finish_anyway(workshop)["conditions"] == {"steady": True, "note": ""}


def test_a_busy_host_is_told_beside_the_times(workshop, answers, monkeypatch):
    monkeypatch.setattr(MadeUpMeter, "others_cores", 1.3)
    conditions = finish_anyway(workshop)["conditions"]
    assert not conditions["steady"]
    assert "other programs used 1.3 of 2 cores" in conditions["note"]
    assert "timed 3 times" in conditions["note"]


@pytest.fixture
def machine(workshop):
    """What the device's machine was measured to compute."""
    found = assume_typical_cpu(cores=2, lanes=16).model_copy(
        update={"gflops": {"float32": 1e3}, "measured": True}
    )
    like = MachineKey(workshop.target_id, ENDPOINT.host_class, ENDPOINT.tvm_version, ENDPOINT.threads)
    workshop.see_device()
    workshop.write(lambda session: Devices(session).store_machine(like, found, "", current_code_name()))


def test_the_tuned_model_is_set_beside_what_the_machine_computes_at_most(workshop, answers, machine):
    """A task of 1e6 operations is called once, the other twice, and all takes 10 us."""
    assert finish_anyway(workshop)["limits"] == {"flop": 3e6, "peak_gflops": 1e3, "peak_share": 0.3}


def test_of_a_machine_that_nobody_measured_no_peak_is_claimed(workshop, answers):
    told = finish_anyway(workshop)
    assert (told["limits"], steps(told)) == ({"flop": 3e6}, [])


def test_a_busy_host_does_not_tell_how_near_its_limits_are(workshop, answers, machine, monkeypatch):
    monkeypatch.setattr(MadeUpMeter, "others_cores", 1.3)
    assert finish_anyway(workshop)["limits"] == {"flop": 3e6}


def test_limits_need_a_time(workshop, answers):
    answers["tuned", "time_bursts"] = ChildTimeout("it took longer than 600 s")
    assert "limits" not in finish_anyway(workshop)
