"""Whatever fails around the whole model, verified schedules are handed out, and the report says the rest."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import pytest

from db.repositories.devices import Devices, MachineKey
from db.repositories.jobs import Jobs
from mallorn.core.errors import MallornError, StorageFull, Unavailable
from mallorn.core.states import JobState
from mallorn.core.values.machine import assumed
from tests.fixtures.finishing import COMPILED, CRASHED, report
from tests.fixtures.inside import Inside
from tests.fixtures.tuned_jobs import tuned
from tests.fixtures.workshop import ENDPOINT
from workers.finish.job_model import where_it_runs
from workers.finish.run import finish
from workers.finish.timing_host import WHY
from workers.host.load_meter import Load
from workers.interfaces.device_runner import Runner
from workers.interfaces.whole_model_engine import LoadedEngine
from workers.measure.tracked_devices import TrackedDevice
from workers.subprocesses.errors import ChildFailed, ChildTimeout

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


def disagree(expected_npz, **_params):
    """TVM and onnxruntime understand the model in different ways."""
    return 0.5 if "onnxruntime" in expected_npz else 0.0


class Fault(NamedTuple):
    """What processes and engines answer, and what the report says then."""

    steps: tuple[str, ...]  # that were not done
    timed: str  # the engines whose times are told
    graphs: Mapping[str, Any] = {}
    engines: Mapping[tuple[str, str], Any] = {}
    options: Mapping[str, Any] = {}
    words: tuple[str, ...] = ()  # of the first step
    told: Mapping[str, Any] = {}
    not_told: tuple[str, ...] = ()


NOBODY_WAITS = AssertionError("nobody waits for this")
NO_OPERATOR = ChildFailed("NotImplemented", "no such operator")
LATE = ChildTimeout("it took longer than 600 s")
BOTH_AGREE = {"error_vs_untuned": 1e-7, "error_vs_onnxruntime": 1e-7}
NO_TRIALS = {"trials": 0}
FAULTS = {
    "nothing fails": Fault((), "untuned tuned onnxruntime", told=BOTH_AGREE),
    "the model does not compile with its schedules": Fault(
        ("compile the tuned model",),
        "",
        graphs={"compile_model": NO_LOWERING},
        words=("no lowering for this", "mallorn resume "),
        told={"found": 2, "of": 2},
        not_told=("latency_us",),
    ),
    "the untuned model does not compile": Fault(
        ("compile the untuned model",),
        "tuned onnxruntime",
        graphs={"compile_default": CRASHED},
        words=("memory",),
    ),
    "no trials: onnxruntime confirms the numbers, and nobody compiles the untuned model": Fault(
        (),
        "tuned onnxruntime",
        graphs={"compile_default": NOBODY_WAITS},
        options=NO_TRIALS,
        told={"error_vs_onnxruntime": 1e-7},
        not_told=("error_vs_untuned",),
    ),
    "no trials: onnxruntime fails, and the untuned model is asked": Fault(
        ("load onnxruntime",),
        "untuned tuned",
        engines={("onnxruntime", "load_onnxruntime"): NO_OPERATOR},
        options=NO_TRIALS,
        told={"error_vs_untuned": 1e-7},
    ),
    "no trials: onnxruntime says something else, and the untuned model is asked": Fault(
        ("agree with onnxruntime",),
        "untuned tuned onnxruntime",
        graphs={"compare_models": disagree},
        options=NO_TRIALS,
    ),
    "the model is large for this host: no untuned one is made": Fault(
        (),
        "tuned onnxruntime",
        graphs={"compile_default": NOBODY_WAITS, "compile_model": replace(COMPILED, bytes=1 << 60)},
    ),
    "there are no inputs": Fault(
        ("make inputs for the model",),
        "",
        graphs={"make_inputs": ChildFailed("ValueError", "no such type")},
        not_told=("latency_us",),
    ),
    "onnxruntime is not installed": Fault(
        ("load onnxruntime",),
        "untuned tuned",
        engines={
            ("onnxruntime", "load_onnxruntime"): Unavailable(
                "it is not installed", hint="pip install onnxruntime"
            )
        },
    ),
    "onnxruntime has no such operator": Fault(
        ("load onnxruntime",),
        "untuned tuned",
        engines={("onnxruntime", "load_onnxruntime"): NO_OPERATOR},
    ),
    "onnxruntime never answers": Fault(
        ("run onnxruntime",), "untuned tuned", engines={("onnxruntime", "save_outputs"): LATE}
    ),
    "onnxruntime is never timed": Fault(
        ("time onnxruntime",), "untuned tuned", engines={("onnxruntime", "time_bursts"): LATE}
    ),
    "the tuned model crashes": Fault(
        ("run the tuned model",), "untuned onnxruntime", engines={("tuned", "save_outputs"): CRASHED}
    ),
    "the tuned model computes something else": Fault(
        ("check the tuned model",),
        "untuned onnxruntime",
        graphs={"compare_models": 0.25},
        words=("relative error 2.5e-01, allowed 1e-04",),
        told={"error_vs_untuned": 0.25},
    ),
    "an error without bounds, which JSON cannot say": Fault(
        ("check the tuned model",),
        "untuned onnxruntime",
        graphs={"compare_models": float("inf")},
        told={"error_vs_untuned": None},
    ),
    "TVM and onnxruntime understand the model in different ways": Fault(
        ("agree with onnxruntime",), "untuned tuned onnxruntime", graphs={"compare_models": disagree}
    ),
}


@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS)
def test_what_fails_is_told_and_whatever_else_there_is_is_timed(workshop, answers, fault):
    workshop.graph_answers |= fault.graphs
    answers.update(fault.engines)
    told = finished(workshop, **fault.options)
    assert tuple(steps(told)) == fault.steps
    assert set(told.get("latency_us", {})) == set(fault.timed.split())
    assert fault.told.items() <= told.items()
    assert not told.keys() & set(fault.not_told)
    text = "".join(entry["why"] + entry["hint"] for entry in told["not_done"][:1])
    assert all(words in text for words in fault.words)


def test_a_compilation_whose_process_died_is_tried_once_more(workshop, answers):
    deaths = iter([CRASHED, COMPILED])

    def compile_model(**_params):
        if isinstance(end := next(deaths), Exception):
            raise end
        return end

    workshop.graph_answers["compile_model"] = compile_model
    assert finished(workshop)["not_done"] == []


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
