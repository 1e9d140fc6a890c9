"""Whole models on a device of another host, over RPC: checked, timed and told apart as on this one."""

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mallorn.core.targets import Target, parse_target
from mallorn.workers.host.load_meter import Load
from mallorn.workers.interfaces.device_runner import Runner
from mallorn.workers.measure.compare_outputs import compare_models
from mallorn.workers.tvm import engine_child
from mallorn.workers.tvm.compile.compile_model import compile_default, compile_model
from mallorn.workers.tvm.model_compiler_child import make_inputs
from mallorn.workers.whole_model import interleaved_timing
from mallorn.workers.whole_model.device_engine import DeviceEngine, DeviceFailed, DevicePool, read_device_load
from mallorn.workers.whole_model.interleaved_timing import (
    time_interleaved,
    time_kernels_interleaved,
    time_undisturbed,
)
from tests.fixtures.fleet import TestFleet, running_fleet
from tests.integration.tvm_graph.conftest import TARGET


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestFleet]:
    with running_fleet(tmp_path_factory.mktemp("fleet")) as fleet:
        fleet.start_device(Target(TARGET.text), "far")
        yield fleet


@pytest.fixture(scope="module")
def prepared(example: Any, tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, Path, Path, Path]:
    """A model, its library with schedules and without, and its inputs."""
    one = example("mlp")
    folder = tmp_path_factory.mktemp("models")
    tuned, untuned, inputs = (folder / name for name in ("tuned.so", "untuned.so", "inputs.npz"))
    compile_model(one.path, one.schedules, one.target, one.recipe, str(tuned), {})
    compile_default(one.path, one.target, str(untuned), {})
    make_inputs(one.path, str(inputs), 3, {}, {})
    return one, tuned, untuned, inputs


@pytest.fixture
def seat(fleet: TestFleet) -> Iterator[DevicePool]:
    with Runner(name="runner") as runner:
        fleet.wait_free(parse_target(TARGET.text))
        yield DevicePool(runner, fleet.address, Target(TARGET.text))


def held(seat: DevicePool, name: str, library: Path, inputs: Path) -> DeviceEngine:
    engine = DeviceEngine(seat, name)
    assert engine.begin_loading(library, inputs)().engine == "tvm"
    return engine


def test_a_device_computes_what_this_host_computes(
    prepared: tuple[Any, Path, Path, Path], seat: DevicePool, tmp_path: Path
) -> None:
    one, tuned, _, inputs = prepared
    assert held(seat, "tuned", tuned, inputs).save_outputs(str(tmp_path / "far.npz")) == 1
    engine_child.load_library(str(tuned), one.target, str(inputs))
    engine_child.save_outputs(str(tmp_path / "here.npz"))
    assert compare_models(str(tmp_path / "far.npz"), str(tmp_path / "here.npz")) < 1e-6


def test_models_race_on_one_device(
    prepared: tuple[Any, Path, Path, Path], seat: DevicePool, fleet: TestFleet
) -> None:
    _, tuned, untuned, inputs = prepared
    both = {"tuned": held(seat, "tuned", tuned, inputs), "untuned": held(seat, "untuned", untuned, inputs)}
    found = time_interleaved(both, passes=2)
    assert all(len(one.bursts) == 2 and min(one.bursts) > 0 for one in found.values())
    assert {"model/tuned", "model/untuned"} <= set(fleet.executions())


def test_kernels_inside_the_model_go_by_the_names_of_their_tasks(
    prepared: tuple[Any, Path, Path, Path], seat: DevicePool
) -> None:
    one, tuned, _, inputs = prepared
    (times,) = time_kernels_interleaved([held(seat, "tuned", tuned, inputs)], seconds=0.1, passes=2)
    assert set(times) == {task.name for task in one.tasks}
    assert all(us > 0 for us in times.values())


def test_the_devices_host_tells_how_busy_it_was(
    prepared: tuple[Any, Path, Path, Path], seat: DevicePool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(interleaved_timing, "QUIET_PATIENCE_SEC", 0.0)  # beside other tests it never is
    _, tuned, _, inputs = prepared
    engine = held(seat, "tuned", tuned, inputs)
    read_load = partial(read_device_load, seat)
    assert isinstance(read_load(), Load)
    assert time_undisturbed({"tuned": engine}, read_load, is_alone=True).latency_us["tuned"].median > 0


def test_a_device_without_the_memory_says_so_before_anything_is_sent(
    prepared: tuple[Any, Path, Path, Path], tmp_path: Path
) -> None:
    little = "import mallorn.workers.host.host_memory as memory; memory.free_bytes = lambda: 1000\n"
    _, tuned, _, inputs = prepared
    with running_fleet(tmp_path) as fleet, Runner(name="runner") as runner:
        fleet.start_device(Target(TARGET.text), "small", before=little)
        fleet.wait_free(parse_target(TARGET.text))
        seat = DevicePool(runner, fleet.address, Target(TARGET.text))
        with pytest.raises(DeviceFailed, match=r"device small has 0\.0 GB of free memory") as caught:
            held(seat, "tuned", tuned, inputs)
        assert caught.value.hint
        assert fleet.executions() == []


def test_a_lost_session_costs_no_engine_that_is_asked_again(
    prepared: tuple[Any, Path, Path, Path], seat: DevicePool, fleet: TestFleet
) -> None:
    _, tuned, _, inputs = prepared
    engine = held(seat, "tuned", tuned, inputs)
    fleet.lose_session()
    assert engine.time_bursts(bursts=1, number=1)[0] > 0


def test_a_device_that_is_given_back_is_free_at_once(
    prepared: tuple[Any, Path, Path, Path], seat: DevicePool, fleet: TestFleet, tmp_path: Path
) -> None:
    _, tuned, _, inputs = prepared
    engine = held(seat, "tuned", tuned, inputs)
    engine.save_outputs(str(tmp_path / "outputs.npz"))
    engine.time_bursts(bursts=1, number=2)
    engine.time_kernels(seconds=0.05)
    seat.runner.release_devices()
    assert seat.runner.alive
    fleet.wait_free(parse_target(TARGET.text))


def test_a_model_that_a_device_cannot_load_is_told_by_the_devices_name(
    prepared: tuple[Any, Path, Path, Path], seat: DevicePool, fleet: TestFleet, tmp_path: Path
) -> None:
    broken = tmp_path / "broken.so"
    broken.write_bytes(b"no library")
    inputs = prepared[3]
    wait_until_loaded = DeviceEngine(seat, "tuned").begin_loading(broken, inputs)
    with pytest.raises(DeviceFailed, match="device far: "):
        wait_until_loaded()
    fleet.wait_free(parse_target(TARGET.text))


def test_inputs_that_do_not_fit_are_told_and_the_next_model_is_held(
    prepared: tuple[Any, Path, Path, Path], seat: DevicePool, tmp_path: Path
) -> None:
    _, tuned, _, inputs = prepared
    np.savez(tmp_path / "odd.npz", input=np.zeros((1, 1), "float32"), more=np.zeros(1, "float32"))
    odd = DeviceEngine(seat, "odd")
    with pytest.raises(DeviceFailed, match="device far: "):
        odd.begin_loading(tuned, tmp_path / "odd.npz")()
    assert held(seat, "tuned", tuned, inputs).save_outputs(str(tmp_path / "outputs.npz")) == 1
