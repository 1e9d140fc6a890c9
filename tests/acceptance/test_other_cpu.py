"""Without a board, qemu-user runs a real `mallorn device` of another instruction set, AArch64."""

import json
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from mallorn.core.targets import parse_target
from mallorn.workers.device.tracker_client import tracker_key
from mallorn.workers.measure.tracked_devices import Fleet
from mallorn.workers.sandbox.seccomp import ALLOWED, SPECIAL
from tests.fixtures.command_line import ROOT
from tests.fixtures.elf_files import AARCH64
from tests.fixtures.emulated import (
    calls_in_sandboxes,
    emulated_device,
    emulated_environment,
    emulated_python,
)
from tests.fixtures.fleet import running_fleet
from tests.fixtures.service import (
    JOB_SEC,
    START_SEC,
    Service,
    dense_network,
    log_key,
    seldom,
    start_service,
    stop_service,
    trials,
)
from tests.fixtures.tutorials import blocks
from tests.fixtures.waiting import wait_for

TARGET: Final = parse_target(
    {"kind": "llvm", "mtriple": "aarch64-linux-gnu", "mattr": ["+neon", "+dotprod"], "num-cores": 1}
)
LARGEST_ERROR: Final = 1e-4
KEY: Final = "k" * 40

RUN_KERNEL: Final = """
import sys
import numpy, tvm
from tvm import rpc, te
target, library, port, key = sys.argv[1:]
a, b = te.placeholder((64, 64), name="a"), te.placeholder((64, 64), name="b")
k = te.reduce_axis((0, 64))
c = te.compute((64, 64), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="c")
module = tvm.IRModule({"main": te.create_prim_func([a, b, c])})
kernel = tvm.tirx.build(module, target=tvm.target.Target(target))
link = lambda out, objects, options=None, **_: __import__("subprocess").run(
    [sys.executable, "-m", "ziglang", "ld.lld", "-shared", "-o", out, *objects],
    check=True)
link.output_format = "so"
kernel.export_library(library, fcompile=link)
session = rpc.connect_tracker("127.0.0.1", int(port)).request(key)
session.upload(library)
arrays = [numpy.random.default_rng(seed).random((64, 64), "float32") for seed in range(3)]
tensors = [tvm.runtime.tensor(array, session.cpu()) for array in arrays]
session.load_module("kernel.so")["main"](*tensors)
numpy.testing.assert_allclose(tensors[2].numpy(), arrays[0] @ arrays[1], rtol=1e-4)
"""

DETECT: Final = """
import sys
from mallorn.core.targets import Target
from mallorn.workers.device.detect_host import detect_target, read_host_facts
from mallorn.workers.device.target_support import find_unsupported_reason
target = detect_target()
print(target.text)
print(read_host_facts()["cpu_model"])
print(find_unsupported_reason(target))
print(find_unsupported_reason(Target(sys.argv[1])))
"""


def said(folder: Path) -> str:
    """What the device printed."""
    return (folder / "device.log").read_text()


def architecture(library: Path) -> int:
    """The machine in a library's ELF header."""
    return int.from_bytes(library.read_bytes()[18:20], "little")


def wait_until_it_joined(device: "subprocess.Popen[bytes]", folder: Path) -> None:
    """Until a device registered with its tracker."""
    wait_for(
        seldom(lambda: "registered with" in said(folder) or device.poll() is not None),
        "the device",
        START_SEC,
    )
    assert device.poll() is None, said(folder)


def options(tracker: str) -> list[str]:
    return ["--target", TARGET.text, "--tracker", tracker, "--name", "board"]


def test_a_kernel_for_another_cpu_runs_on_a_device_of_that_cpu(tmp_path: Path) -> None:
    library, trace = tmp_path / "kernel.so", tmp_path / "trace"
    with (
        running_fleet(tmp_path) as fleet,
        emulated_device(options(fleet.address), tmp_path, trace=trace) as device,
    ):
        wait_until_it_joined(device, tmp_path)
        words = (TARGET.text, str(library), str(fleet.tracker.port), tracker_key(TARGET))
        command = [sys.executable, "-c", RUN_KERNEL, *words]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr + said(tmp_path)
    assert architecture(library) == AARCH64
    # qemu-user installs no filter, so the calls that a board's filter would refuse are found here.
    calls = calls_in_sandboxes(trace)
    assert any({"openat", "sendto"} <= names for names in calls)  # the session
    assert set().union(*calls) <= ALLOWED.keys() | SPECIAL.keys()


@pytest.mark.long
@pytest.mark.parametrize(
    ("cpu", "has", "lacks"),
    [
        ("cortex-a72", {"+neon"}, {"+dotprod", "+fullfp16", "+i8mm"}),
        ("max", {"+neon", "+dotprod", "+i8mm", "+bf16", "+sve"}, set()),
    ],
)
def test_a_board_names_its_architecture_and_what_its_kernel_grants(
    cpu: str, has: set[str], lacks: set[str]
) -> None:
    command = [emulated_python(cpu), "-P", "-c", DETECT, TARGET.text]
    done = subprocess.run(command, env=emulated_environment(), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    text, model, own_reason, reason = done.stdout.splitlines()
    target = json.loads(text)
    assert target["mtriple"] == "aarch64-linux-gnu"
    assert has <= set(target["mattr"])
    assert not lacks & set(target["mattr"])
    assert model == "aarch64"  # and not this machine's CPU, whose /proc/cpuinfo it sees
    assert own_reason == ""
    assert reason == ("its CPU lacks dotprod" if "+dotprod" in lacks else "")


@pytest.mark.long
def test_the_line_of_the_installation_page_brings_a_board_into_the_fleet(tmp_path: Path) -> None:
    page = blocks((ROOT / "docs" / "install.md").read_text())
    (lines,) = [block.code.splitlines() for block in page if "mallorn device" in block.code]
    assert lines[0] == "pip install -r requirements/device.txt"  # which `make cross` fetched for it
    setting, *command = shlex.split(lines[-1].replace("10.0.0.7", "127.0.0.1"))
    assert (setting, command[:2]) == ("MALLORN_RPC_KEY=KEY", ["mallorn", "device"])
    with running_fleet(tmp_path, KEY) as fleet:
        words = [word.replace("10.0.0.2:9190", fleet.address) for word in command[2:]]
        with emulated_device(words, tmp_path, KEY, "neoverse-n1") as device:
            wait_until_it_joined(device, tmp_path)
            (endpoint,) = [listed.endpoint for listed in Fleet(fleet.settings).devices()]
            (target,) = [listed.target for listed in Fleet(fleet.settings).devices()]
    assert endpoint.info.machine == "aarch64"
    assert f"measures for {target}" in said(tmp_path)
    assert endpoint.info.sandbox in said(tmp_path)


@pytest.mark.long
def test_a_kernel_without_landlock_is_refused_with_the_reason_where_it_is_required(tmp_path: Path) -> None:
    words = [emulated_python(), "-P", "-m", "mallorn", "device", *options("127.0.0.1:1")]
    env = emulated_environment(MALLORN_SANDBOX="require-files", MALLORN_DATA_DIR=str(tmp_path))
    done = subprocess.run(words, env=env, capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert "Landlock (Function not implemented)" in done.stderr
    assert "MALLORN_SANDBOX=best-effort takes what there is" in done.stderr


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    started = start_service(tmp_path)
    yield started
    stop_service(started)


def test_a_job_for_another_cpu_is_tuned_checked_and_exported(service: Service, tmp_path: Path) -> None:
    (tmp_path / "dense.onnx").write_bytes(dense_network())
    folder = tmp_path / "board"
    folder.mkdir()
    info, key = service.data.read_stack(), (service.data.path / "rpc.key").read_text()
    assert info is not None
    job = service.client.submit(tmp_path / "dense.onnx", target=TARGET.attrs, trials=4)
    with emulated_device(options(info.tracker), folder, key):
        job.wait(JOB_SEC)
        (device,) = [row for row in service.client.devices() if row.name == "board"]
    assert device.info.machine == "aarch64"
    assert "Landlock" in device.info.sandbox  # which qemu-user lacks: the fleet knows
    runs = [line.split("\t")[1] for line in (folder / "executions.log").read_text().splitlines()]
    assert {log_key(record) for record in trials(service.client, job) if record.outcome == "ok"}
    assert {log_key(record) for record in trials(service.client, job)} <= set(runs)
    report = job.body["report"]
    assert report["error_vs_onnxruntime"] <= LARGEST_ERROR
    assert {"tuned", "untuned"} <= report["latency_us"].keys()
    assert report["library"]["cpu_features"] == ["asimd", "asimddp"]
    assert architecture(job.fetch(tmp_path / "out") / "model.so") == AARCH64
