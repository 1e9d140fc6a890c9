"""Where the device is another host's, it checks and times the whole model."""

from dataclasses import replace

import pytest

from mallorn.core.errors import MallornError, Unavailable
from mallorn.core.host_id import host_id
from mallorn.core.values.fleet import DeviceInfo
from mallorn.workers.finish.job_model import ELSEWHERE, place_on_device
from mallorn.workers.host.load_meter import Load
from mallorn.workers.interfaces.device_runner import Runner
from mallorn.workers.interfaces.whole_model_engine import LoadedEngine
from mallorn.workers.measure.tracked_devices import TrackedDevice
from tests.fixtures.inside import Inside
from tests.fixtures.timed_models import finish_anyway, steps
from tests.fixtures.workshop import ENDPOINT


def test_a_device_that_is_gone_is_why_nothing_is_timed(workshop, exported):
    told = finish_anyway(workshop)
    (entry,) = told["skipped_steps"]
    assert entry["step"] == "time the whole model"
    assert entry["reason"] == "no device for the target is online"


class MadeUpRunner(Inside, Runner):
    """Holds models on a device that computes nothing."""

    def __init__(self, wanted):
        self.wanted = wanted
        super().__init__()

    def told(self, method):
        return self.wanted[method]


@pytest.fixture(params=["of another host", "of another CPU, emulated on this host"])
def elsewhere(workshop, answers, monkeypatch, request):
    """What a device answers whose programs this host cannot run; none of this host runs TVM's engines."""
    wanted = {
        "load_model": LoadedEngine("tvm", "0", 2),
        "save_model_outputs": 1,
        "time_model": [10.0],
        "drop_model": None,
        "release_devices": None,
        "host_load": Load(4, 0.0, 0.0, 0.0),
    }
    host = {"host_id": "far"} if request.param == "of another host" else {}
    endpoint = replace(ENDPOINT, **host or {"host_id": host_id(), "info": DeviceInfo(machine="made-up")})
    far = TrackedDevice("far", workshop.settings.tracker, False, endpoint)
    workshop.runner = MadeUpRunner(wanted)

    def there(model):  # only now: before that nobody is to measure the device's machine
        workshop.fleet.devices = lambda _target=None: [far]
        return place_on_device(model)

    monkeypatch.setattr("mallorn.workers.finish.job_model.place_on_device", there)
    for engine in ("tuned", "untuned"):
        answers[engine, "load_library"] = AssertionError("it is not this host that is asked")
    return wanted


def test_on_another_host_the_device_checks_and_times_the_model(workshop, elsewhere):
    """onnxruntime runs on the worker's host: its answers count, its time does not."""
    told = finish_anyway(workshop)
    assert set(told["latency_us"]) == {"untuned", "tuned"}
    assert (told["error_vs_untuned"], told["error_vs_onnxruntime"]) == (1e-7, 1e-7)
    assert told["conditions"] == {"steady": True, "note": ""}
    (entry,) = told["skipped_steps"]
    assert (entry["step"], entry["reason"]) == ("time onnxruntime beside it", ELSEWHERE)


def test_on_another_host_wrong_numbers_leave_no_time_either(workshop, elsewhere):
    workshop.graph_answers["compare_models"] = 0.25
    told = finish_anyway(workshop)
    assert "check the tuned model" in steps(told)
    assert set(told["latency_us"]) == {"untuned"}


def test_what_else_the_devices_host_did_is_told(workshop, elsewhere, monkeypatch):
    monkeypatch.setattr("mallorn.workers.whole_model.interleaved_timing.QUIET_PATIENCE_SEC", 0.0)
    elsewhere["host_load"] = Load(4, 2.0, 0.0, 0.0)
    assert "other programs used 2.0 of 4 cores" in finish_anyway(workshop)["conditions"]["note"]


@pytest.mark.parametrize(
    ("method", "step"),
    [("load_model", "load the tuned model"), ("save_model_outputs", "run the tuned model")],
)
def test_a_device_that_cannot_hold_the_model_says_so(workshop, elsewhere, method, step):
    elsewhere[method] = MallornError("device far: its session was killed by SIGKILL")
    told = finish_anyway(workshop)
    assert "latency_us" not in told
    assert {"step": step, "reason": "device far: its session was killed by SIGKILL"}.items() <= next(
        entry.items() for entry in told["skipped_steps"] if entry["step"] == step
    )


def test_a_device_that_is_lost_while_it_times_costs_only_the_time(workshop, elsewhere):
    elsewhere["time_model"] = Unavailable("the device was lost", hint="mallorn device")
    told = finish_anyway(workshop)
    assert told.get("latency_us", {}) == {}
    assert told["error_vs_untuned"] == 1e-7
    assert "time the tuned model" in steps(told)


def test_a_model_is_not_timed_alone_where_a_device_of_the_host_shares_no_locks(
    workshop, answers, monkeypatch
):
    monkeypatch.setattr("mallorn.workers.whole_model.interleaved_timing.QUIET_PATIENCE_SEC", 0.0)
    apart = replace(ENDPOINT, info=DeviceInfo(lock_file="of another folder"))
    near = TrackedDevice("near", workshop.settings.tracker, False, apart)

    def here(model):
        workshop.fleet.devices = lambda _target=None: [near]
        return place_on_device(model)

    monkeypatch.setattr("mallorn.workers.finish.job_model.place_on_device", here)
    told = finish_anyway(workshop)["conditions"]
    assert not told["steady"]
    assert "other work of this service went on beside it" in told["note"]
