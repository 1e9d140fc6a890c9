"""Each GPU of a host is a device of its own, which outlives what candidates do to its context."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from mallorn.core.errors import Unavailable
from mallorn.core.job_options import EvaluatorOptions
from mallorn.core.outcomes import Outcome
from mallorn.workers.device.device_class import Endpoint
from mallorn.workers.interfaces.device_runner import LibraryRun, Runner
from mallorn.workers.interfaces.tensor_arguments import Arguments, Tensor
from mallorn.workers.measure.tracked_devices import Fleet
from tests.fixtures.fleet import TestFleet, running_fleet
from tests.fixtures.made_up_gpus import GPU_TARGET, UUIDS, MadeUpGpus
from tests.fixtures.waiting import PATIENCE, wait_for

EVALUATOR = EvaluatorOptions(number=1, repeat=1, min_repeat_ms=0)
ILLEGAL_ADDRESS, ECC, UNKNOWN = 700, 214, 999
HOT = 0x20
NO_SLOWDOWN = 0x01


class GpuHost:
    """A host with the made-up GPUs, and the devices that were started there."""

    def __init__(self, fleet: TestFleet, gpus: MadeUpGpus) -> None:
        self.fleet = fleet
        self.gpus = gpus
        self.log = fleet.folder / "device.log"
        self._started: list[subprocess.Popen[str]] = []

    def start(self, *words: str) -> "subprocess.Popen[str]":
        """Start `mallorn device` for the made-up GPUs."""
        where = ("--tracker", self.fleet.address, "--port", "0", "--log", str(self.fleet.log))
        command = [
            sys.executable,
            "-P",
            "-m",
            "mallorn",
            "device",
            "--target",
            GPU_TARGET.text,
            *where,
            *words,
        ]
        with self.log.open("w") as log:
            env = os.environ | self.gpus.env
            self._started.append(subprocess.Popen(command, env=env, stdout=log, stderr=log, text=True))
        return self._started[-1]

    @property
    def said(self) -> str:
        """What the last device printed."""
        return " ".join(self.log.read_text().split())

    def devices(self) -> list[Endpoint]:
        """Those that wait for work, by name."""
        found = Fleet(self.fleet.settings).devices(GPU_TARGET)
        return sorted((each.endpoint for each in found if not each.busy), key=lambda each: each.name)

    def end(self) -> None:
        for device in self._started:
            device.terminate()
            device.wait(PATIENCE)


@contextmanager
def hosted(folder: Path, gpus: MadeUpGpus) -> Iterator[GpuHost]:
    with running_fleet(folder) as fleet:
        host = GpuHost(fleet, gpus)
        try:
            yield host
        finally:
            host.end()


@pytest.fixture
def fresh(tmp_path: Path, made_up_gpus: MadeUpGpus) -> Iterator[GpuHost]:
    """A host without devices."""
    with hosted(tmp_path, made_up_gpus) as host:
        yield host


@pytest.fixture(scope="module")
def standing(
    tmp_path_factory: pytest.TempPathFactory, standing_gpus: MadeUpGpus
) -> Iterator[tuple[GpuHost, int]]:
    with hosted(tmp_path_factory.mktemp("host"), standing_gpus) as host:
        device = host.start("--gpu", UUIDS[1])
        host.fleet.wait_free(GPU_TARGET)
        yield host, device.pid


@pytest.fixture
def host(standing: tuple[GpuHost, int], made_up_gpus: MadeUpGpus) -> Iterator[GpuHost]:
    """A host whose second GPU is a device, for all tests of the module: it outlives every one."""
    host, pid = standing
    host.fleet.wait_free(GPU_TARGET)
    yield host
    assert psutil.Process(pid).status() != psutil.STATUS_ZOMBIE


def run(
    runner: Runner, host: GpuHost, size: int = 64, in_session: Callable[[], None] = lambda: None
) -> LibraryRun:
    """Run a kernel with matrices of this size; `in_session` is done when the session has begun."""
    library, args = str(host.gpus.library()), Arguments((Tensor("TENSOR", "float32", (size, size)),) * 3)
    runner.take_device(host.fleet.address, GPU_TARGET.text)
    in_session()
    call = Runner.time_candidate.make_call(
        host.fleet.address, GPU_TARGET.text, library, args, EVALUATOR, "fixed", "a", 60, 0.0
    )
    return runner.ask(call.with_limit(2 * PATIENCE))


def test_every_gpu_is_a_device_of_its_own_and_of_its_own_class(fresh: GpuHost) -> None:
    parent = psutil.Process(fresh.start("--name", "big").pid)
    wait_for(lambda: len(fresh.devices()) == 2, "two devices")
    first, second = fresh.devices()
    assert [each.name for each in (first, second)] == ["big-gpu0", "big-gpu1"]
    assert [each.info.gpu_uuid for each in (first, second)] == list(UUIDS)
    assert [each.info.gpu_index for each in (first, second)] == [0, 1]
    assert [each.info.accelerator for each in (first, second)] == ["Made-up GPU 0", "Made-up GPU 1"]
    assert first.host_id == second.host_id
    assert first.host_class.endswith(f"+Made-up-GPU-0+{first.info.gpu_driver}")
    assert first.device_class != second.device_class
    devices = parent.children()
    parent.terminate()
    _, still_there = psutil.wait_procs(devices, PATIENCE)
    assert still_there == []


def test_one_gpu_is_chosen_by_its_uuid(host: GpuHost) -> None:
    [device] = host.devices()
    assert device.name == f"{os.uname().nodename}-{GPU_TARGET.key}-gpu1"
    assert (device.info.gpu_uuid, device.info.gpu_index) == (UUIDS[1], 1)
    assert device.info.gpu_memory_bytes == 1 << 30


def test_a_gpu_that_is_not_there_is_refused_with_those_that_are(fresh: GpuHost) -> None:
    assert fresh.start("--gpu", "7").wait(PATIENCE) != 0
    assert "this host has no GPU 7" in fresh.said
    assert UUIDS[1] in fresh.said.replace(" ", "")


def test_a_session_runs_kernels_and_the_device_never_loads_the_driver(
    runner: Runner, host: GpuHost, standing: tuple[GpuHost, int]
) -> None:
    done = run(runner, host)
    assert (done.outcome, done.error) == (Outcome.OK, "")
    assert done.disturbed is None  # nothing is known without NVML
    device = psutil.Process(standing[1])
    assert "libcuda" not in Path(f"/proc/{device.pid}/maps").read_text()
    [session] = device.children()
    assert "libtvm_runtime_cuda" in Path(f"/proc/{session.pid}/maps").read_text()


def test_a_time_of_a_hot_gpu_is_a_bound(runner: Runner, host: GpuHost) -> None:
    host.gpus.fail("nvml", HOT)
    done = run(runner, host)
    assert (done.outcome, done.disturbed) == (Outcome.OK, 0.5)
    assert done.disturbance is not None
    assert (done.disturbance.upper_bounds, done.disturbance.gpu) == (
        1,
        "heat slowed the GPU down (990 of 1980 MHz, 87 °C, 412 W)",
    )


def test_a_candidate_that_breaks_its_context_costs_its_own_session_only(
    runner: Runner, host: GpuHost
) -> None:
    host.gpus.fail("launch", ILLEGAL_ADDRESS)
    harmed = run(runner, host)
    assert harmed.outcome is Outcome.RUN_ERROR
    assert "illegal memory access" in harmed.error
    assert "a session failed: CUDA" in host.said
    host.gpus.fail("launch", 0)
    assert run(runner, host).outcome is Outcome.OK


def test_a_candidate_that_asks_for_too_much_memory_fails_and_breaks_nothing(
    runner: Runner, host: GpuHost
) -> None:
    told = host.said
    harmed = run(runner, host, size=1 << 15)
    assert harmed.outcome is Outcome.RUN_ERROR
    assert "out of memory" in harmed.error
    assert run(runner, host).outcome is Outcome.OK
    assert "a session failed" not in host.said.removeprefix(told)


def test_memory_that_broke_by_itself_is_no_candidates_fault(runner: Runner, fresh: GpuHost) -> None:
    fresh.gpus.fail("nvml", NO_SLOWDOWN)
    fresh.start("--gpu", "1")
    fresh.fleet.wait_free(GPU_TARGET)
    fresh.gpus.fail("launch", ECC)
    with pytest.raises(Unavailable, match="uncorrectable ECC error"):
        run(runner, fresh, in_session=lambda: fresh.gpus.fail("ecc", 1))
    fresh.gpus.fail("launch", 0)
    assert run(runner, fresh).outcome is Outcome.OK


def test_a_candidate_blames_no_memory_that_the_driver_calls_good(runner: Runner, host: GpuHost) -> None:
    host.gpus.fail("launch", ECC)
    lying = run(runner, host)
    assert lying.outcome is Outcome.RUN_ERROR
    assert "uncorrectable ECC error" in lying.error


def test_a_device_whose_gpu_gives_no_new_context_withdraws(runner: Runner, fresh: GpuHost) -> None:
    device = fresh.start("--gpu", "1")
    fresh.fleet.wait_free(GPU_TARGET)
    fresh.gpus.fail("launch", ILLEGAL_ADDRESS)
    with pytest.raises(Unavailable, match="the device was lost"):
        run(runner, fresh, in_session=lambda: fresh.gpus.fail("init", UNKNOWN))
    assert device.wait(PATIENCE) != 0
    assert "this device unregisters: CUDA's driver does not work" in fresh.said


def test_a_session_whose_gpu_is_gone_blames_no_candidate(runner: Runner, fresh: GpuHost) -> None:
    device = fresh.start("--gpu", "1")
    fresh.fleet.wait_free(GPU_TARGET)
    fresh.gpus.fail("init", UNKNOWN)
    with pytest.raises(Unavailable):
        run(runner, fresh)
    assert device.wait(PATIENCE) != 0
