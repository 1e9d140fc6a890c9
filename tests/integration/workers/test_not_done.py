"""Whatever fails around the whole model, verified schedules are handed out, and the report says the rest."""

from dataclasses import replace
from pathlib import Path
from typing import ClassVar

import pytest

from db.repositories.devices import Devices, MachineKey
from db.repositories.jobs import Jobs
from mallorn.core.errors import MallornError, StorageFull, Unavailable
from mallorn.core.states import JobState
from mallorn.core.values.machine import assumed
from tests.fixtures.inside import Inside
from tests.fixtures.workshop import ENDPOINT
from tests.integration.workers.test_finish import COMPILED, CRASHED, check, exported, report, tuned
from workers.finish.job_model import where_it_runs
from workers.finish.run import finish
from workers.finish.timing_host import WHY
from workers.host.load_meter import Load
from workers.interfaces.device_runner import Runner
from workers.interfaces.whole_model_engine import LoadedEngine
from workers.measure.tracked_devices import TrackedDevice
from workers.subprocesses.errors import ChildFailed, ChildTimeout

__all__ = ["check", "exported"]  # fixtures
NO_LOWERING = ChildFailed("InternalError", "no lowering for this")


class MadeUpMeter:
    """A host that nobody else uses, unless a test says how much."""

    others_cores: ClassVar[float] = 0.0

    def __init__(self, ours):
        assert ours()

    def look(self):
        return Load(2, MadeUpMeter.others_cores, 0.0, 0.0)

    def wait_for_quiet(self, patience_sec):
        """It stays as it is."""


@pytest.fixture
def answers(workshop, exported, monkeypatch, engines_told):
    """What engines answer; the graph process finds that all agree."""
    monkeypatch.setattr("workers.finish.final_schedules.where_it_runs", lambda _model: None)
    monkeypatch.setattr("workers.finish.timing_host.where_it_runs", lambda model: model)
    monkeypatch.setattr("workers.whole_model.compiled_model.LoadMeter", MadeUpMeter)
    workshop.graph_answers["compare_models"] = 1e-7
    return engines_told


def finished(workshop, **wanted):
    """The report of a job that ends with both its schedules, whatever goes wrong."""
    job = tuned(workshop, **wanted)
    finish(workshop, job)
    assert workshop.state(job) == JobState.DONE
    stored = workshop.read(lambda session: Jobs(session).get(job, None))
    assert Path(stored.export_uri, "manifest.json").exists()
    assert Path(stored.export_uri, "report.json").exists()
    told = report(workshop, job)
    assert len(told["tasks_us"]) == 2
    assert all(entry["why"] and entry["hint"] for entry in told["not_done"])
    return told


def steps(told):
    return [entry["step"] for entry in told["not_done"]]


def test_nothing_is_left_out_where_nothing_fails(workshop, answers):
    told = finished(workshop)
    assert told["not_done"] == []
    assert set(told["latency_us"]) == {"untuned", "tuned", "onnxruntime"}
    assert (told["error_vs_untuned"], told["error_vs_onnxruntime"]) == (1e-7, 1e-7)


def test_a_model_that_does_not_compile_with_its_schedules_costs_only_its_time(workshop, answers):
    workshop.graph_answers["compile_model"] = NO_LOWERING
    told = finished(workshop)
    assert steps(told) == ["compile the tuned model"]
    assert "no lowering for this" in told["not_done"][0]["why"]
    assert told["not_done"][0]["hint"].startswith("mallorn resume ")
    assert (told["found"], told["of"]) == (2, 2)
    assert "latency_us" not in told


def test_a_compilation_whose_process_died_is_tried_once_more(workshop, answers):
    deaths = iter([CRASHED, COMPILED])

    def compile_model(**_params):
        if isinstance(end := next(deaths), Exception):
            raise end
        return end

    workshop.graph_answers["compile_model"] = compile_model
    assert finished(workshop)["not_done"] == []


def test_without_the_untuned_model_the_others_are_timed(workshop, answers):
    workshop.graph_answers["compile_default"] = CRASHED
    told = finished(workshop)
    assert steps(told) == ["compile the untuned model"]
    assert "memory" in told["not_done"][0]["hint"]
    assert set(told["latency_us"]) == {"tuned", "onnxruntime"}


def test_a_job_without_trials_compiles_no_untuned_model_where_onnxruntime_confirms_the_numbers(
    workshop, answers
):
    workshop.graph_answers["compile_default"] = AssertionError("nobody waits for this")
    told = finished(workshop, trials=0)
    assert told["not_done"] == []
    assert set(told["latency_us"]) == {"tuned", "onnxruntime"}
    assert told["error_vs_onnxruntime"] == 1e-7
    assert "error_vs_untuned" not in told


def test_a_job_without_trials_asks_the_untuned_model_where_onnxruntime_fails(workshop, answers):
    answers["onnxruntime", "load_onnxruntime"] = ChildFailed("NotImplemented", "no such operator")
    told = finished(workshop, trials=0)
    assert steps(told) == ["load onnxruntime"]
    assert set(told["latency_us"]) == {"tuned", "untuned"}
    assert told["error_vs_untuned"] == 1e-7


def test_a_job_without_trials_asks_the_untuned_model_where_onnxruntime_says_something_else(workshop, answers):
    def compare_models(expected_npz, **_params):
        return 0.5 if "onnxruntime" in expected_npz else 0.0

    workshop.graph_answers["compare_models"] = compare_models
    told = finished(workshop, trials=0)
    assert steps(told) == ["agree with onnxruntime"]
    assert set(told["latency_us"]) == {"untuned", "tuned", "onnxruntime"}


def test_of_a_model_that_is_large_for_this_host_no_untuned_one_is_made(workshop, answers):
    workshop.graph_answers["compile_default"] = AssertionError("nobody waits for this")
    workshop.graph_answers["compile_model"] = replace(COMPILED, bytes=1 << 60)
    told = finished(workshop)
    assert told["not_done"] == []
    assert set(told["latency_us"]) == {"tuned", "onnxruntime"}


def test_without_inputs_nothing_is_timed(workshop, answers):
    workshop.graph_answers["make_inputs"] = ChildFailed("ValueError", "no such type")
    told = finished(workshop)
    assert steps(told) == ["make inputs for the model"]
    assert "latency_us" not in told


@pytest.mark.parametrize(
    ("method", "error", "step"),
    [
        ("load_onnxruntime", Unavailable("it is not installed", hint="pip install onnxruntime"), "load"),
        ("load_onnxruntime", ChildFailed("NotImplemented", "no such operator"), "load"),
        ("save_outputs", ChildTimeout("it took longer than 600 s"), "run"),
        ("time_bursts", ChildTimeout("it took longer than 600 s"), "time"),
    ],
)
def test_where_onnxruntime_fails_the_other_engines_are_timed(workshop, answers, method, error, step):
    answers["onnxruntime", method] = error
    told = finished(workshop)
    assert steps(told) == [f"{step} onnxruntime"]
    assert set(told["latency_us"]) == {"untuned", "tuned"}


def test_a_tuned_model_that_crashes_is_told_and_no_time_is_claimed_for_it(workshop, answers):
    answers["tuned", "save_outputs"] = CRASHED
    told = finished(workshop)
    assert steps(told) == ["run the tuned model"]
    assert set(told["latency_us"]) == {"untuned", "onnxruntime"}


def test_no_time_is_claimed_for_a_tuned_model_that_computes_something_else(workshop, answers):
    workshop.graph_answers["compare_models"] = 0.25
    told = finished(workshop)
    assert steps(told) == ["check the tuned model"]
    assert "relative error 2.5e-01, allowed 1e-04" in told["not_done"][0]["why"]
    assert set(told["latency_us"]) == {"untuned", "onnxruntime"}
    assert told["error_vs_untuned"] == 0.25


def test_an_error_without_bounds_is_told_in_json_too(workshop, answers):
    workshop.graph_answers["compare_models"] = float("inf")
    told = finished(workshop)
    assert told["error_vs_untuned"] is None
    assert steps(told) == ["check the tuned model"]


def test_a_model_that_tvm_and_onnxruntime_understand_in_different_ways_is_told(workshop, answers):
    def compare_models(expected_npz, **_params):
        return 0.5 if "onnxruntime" in expected_npz else 0.0

    workshop.graph_answers["compare_models"] = compare_models
    told = finished(workshop)
    assert steps(told) == ["agree with onnxruntime"]
    assert set(told["latency_us"]) == {"untuned", "tuned", "onnxruntime"}


def test_a_device_that_is_gone_is_why_nothing_is_timed(workshop, exported):
    told = finished(workshop)
    (entry,) = told["not_done"]
    assert entry["step"] == "time the whole model"
    assert entry["why"] == "no device of the target is there any more"


class MadeUpRunner(Inside, Runner):
    """Holds models on a device that computes nothing."""

    def __init__(self, wanted):
        self.wanted = wanted
        super().__init__()

    def told(self, method):
        return self.wanted[method]


@pytest.fixture
def elsewhere(workshop, answers, monkeypatch):
    """What the device of another host answers; none of this host runs TVM's engines."""
    wanted = {
        "load_model": LoadedEngine("tvm", "0", 2),
        "save_model_outputs": 1,
        "time_model": [10.0],
        "drop_model": None,
        "release": None,
        "host_load": Load(4, 0.0, 0.0, 0.0),
    }
    far = TrackedDevice("far", workshop.settings.tracker, False, replace(ENDPOINT, host_id="far"))
    workshop.runner = MadeUpRunner(wanted)

    def there(model):  # only now: before that nobody is to measure the device's machine
        workshop.fleet.devices = lambda _target=None: [far]
        return where_it_runs(model)

    monkeypatch.setattr("workers.finish.timing_host.where_it_runs", there)
    for engine in ("tuned", "untuned"):
        answers[engine, "load_library"] = AssertionError("it is not this host that is asked")
    return wanted


def test_on_another_host_the_device_checks_and_times_the_model(workshop, elsewhere):
    """onnxruntime runs on the worker's host: its answers count, its time does not."""
    told = finished(workshop)
    assert set(told["latency_us"]) == {"untuned", "tuned"}
    assert (told["error_vs_untuned"], told["error_vs_onnxruntime"]) == (1e-7, 1e-7)
    assert told["conditions"] == {"steady": True, "note": ""}
    (entry,) = told["not_done"]
    assert (entry["step"], entry["why"]) == ("time onnxruntime beside it", WHY)


def test_on_another_host_wrong_numbers_leave_no_time_either(workshop, elsewhere):
    workshop.graph_answers["compare_models"] = 0.25
    told = finished(workshop)
    assert "check the tuned model" in steps(told)
    assert set(told["latency_us"]) == {"untuned"}


def test_what_else_the_devices_host_did_is_told(workshop, elsewhere, monkeypatch):
    monkeypatch.setattr("workers.whole_model.quiet_timing.QUIET_PATIENCE_SEC", 0.0)
    elsewhere["host_load"] = Load(4, 2.0, 0.0, 0.0)
    assert "other programs used 2.0 of 4 cores" in finished(workshop)["conditions"]["note"]


@pytest.mark.parametrize(
    ("method", "step"),
    [("load_model", "load the tuned model"), ("save_model_outputs", "run the tuned model")],
)
def test_a_device_that_cannot_hold_the_model_says_so(workshop, elsewhere, method, step):
    elsewhere[method] = MallornError("device far: its session was killed by SIGKILL")
    told = finished(workshop)
    assert "latency_us" not in told
    assert {"step": step, "why": "device far: its session was killed by SIGKILL"}.items() <= next(
        entry.items() for entry in told["not_done"] if entry["step"] == step
    )


def test_a_device_that_is_lost_while_it_times_costs_only_the_time(workshop, elsewhere):
    elsewhere["time_model"] = Unavailable("the device was lost", hint="mallorn device")
    told = finished(workshop)
    assert told.get("latency_us", {}) == {}
    assert told["error_vs_untuned"] == 1e-7
    assert "time the tuned model" in steps(told)


def test_a_full_disk_still_makes_the_finish_wait(workshop, answers):
    workshop.graph_answers["compile_default"] = StorageFull()
    job = tuned(workshop)
    finish(workshop, job)
    assert workshop.state(job) == JobState.FINISHING
    assert "disk" in workshop.reason(job)


def test_a_quiet_host_needs_no_words(workshop, answers):
    assert finished(workshop)["conditions"] == {"steady": True, "note": ""}


def test_a_busy_host_is_told_beside_the_times(workshop, answers, monkeypatch):
    monkeypatch.setattr(MadeUpMeter, "others_cores", 1.3)
    conditions = finished(workshop)["conditions"]
    assert not conditions["steady"]
    assert "other programs used 1.3 of 2 cores" in conditions["note"]
    assert "timed 3 times" in conditions["note"]


@pytest.fixture
def machine(workshop):
    """What the device's machine was measured to compute."""
    found = assumed(cores=2, lanes=16).model_copy(update={"gflops": {"float32": 1e3}, "measured": True})
    like = MachineKey(workshop.target_id, ENDPOINT.host_class, ENDPOINT.tvm_version, ENDPOINT.threads)
    workshop.see_device()
    workshop.write(lambda session: Devices(session).found_out(like, found, ""))


def test_the_tuned_model_is_set_beside_what_the_machine_computes_at_most(workshop, answers, machine):
    """A task of 1e6 operations is called once, the other twice, and all takes 10 us."""
    assert finished(workshop)["limits"] == {"flop": 3e6, "peak_gflops": 1e3, "peak_share": 0.3}


def test_of_a_machine_that_nobody_measured_no_peak_is_claimed(workshop, answers):
    told = finished(workshop)
    assert (told["limits"], steps(told)) == ({"flop": 3e6}, [])


def test_a_busy_host_does_not_tell_how_near_its_limits_are(workshop, answers, machine, monkeypatch):
    monkeypatch.setattr(MadeUpMeter, "others_cores", 1.3)
    assert finished(workshop)["limits"] == {"flop": 3e6}


def test_limits_need_a_time(workshop, answers):
    answers["tuned", "time_bursts"] = ChildTimeout("it took longer than 600 s")
    assert "limits" not in finished(workshop)
