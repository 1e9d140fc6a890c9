"""What a tuning needs is looked at before anything is started, a line and a next step each."""

import json
import os
import platform
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from subprocess import CompletedProcess
from types import SimpleNamespace
from typing import Any, Final

import pytest
from typer.testing import Result

from mallorn.cli import host_checks
from mallorn.cli import tune_and_resume as tune
from mallorn.core.errors import ExitCode, HostFault, InvalidModel
from mallorn.core.targets import Target
from mallorn.core.values.graph_report import TensorSpec
from mallorn.kinds.cuda.compiler import compile_cuda
from mallorn.kinds.cuda.compiler.compile_cuda import Toolchain
from mallorn.kinds.cuda.device import nvidia_driver
from mallorn.workers.device.detect_host import detect_target
from mallorn.workers.host.linker import link_command
from mallorn.workers.interfaces.model_compiler import ModelCompiler, Signature
from mallorn.workers.sandbox import sandbox_support
from tests.fixtures.answers import mallorn, refused
from tests.fixtures.workshop import MadeUpGraphs

X = TensorSpec(name="x", dtype="float32", shape=[1, 3])
LOOKED = Signature([X], [], {"Relu": 2})
run = partial(mallorn, "check")
SEAMS = (
    (compile_cuda, "find_toolchain"),
    (nvidia_driver, "run_with_tvm"),
    (sandbox_support, "probe_sandbox_support"),
    (host_checks, "check_kernel"),
    (host_checks.shutil, "disk_usage"),
)


@pytest.fixture(autouse=True)
def asked(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, Any]]:
    """What the process that loads TVM and this host answer, by function; an error is raised."""
    answers: dict[str, Any] = {"warm_up": None, "read_signature": LOOKED, "probe_sandbox_support": "full"}

    @contextmanager
    def process(*_: Any, **__: Any) -> Iterator[ModelCompiler]:
        yield MadeUpGraphs(answers)

    def answered(function: Callable[..., Any]) -> Callable[..., Any]:
        def answer(*given: Any) -> Any:
            found = answers.get(function.__name__, function)
            if isinstance(found, Exception):
                raise found
            return found(*given) if callable(found) else found

        return answer

    answers["check_kernel"] = lambda target: f"one for {target} ran"
    monkeypatch.setattr(host_checks, "tvm_process", process)
    for module, name in SEAMS:
        monkeypatch.setattr(module, name, answered(getattr(module, name)))
    yield answers
    link_command.cache_clear()


def hide_compilers(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(host_checks, "search_path", lambda: str(tmp_path))
    monkeypatch.delenv("CC", raising=False)
    link_command.cache_clear()


@pytest.fixture(scope="module")
def local_target() -> Target:
    return detect_target()


@pytest.fixture(autouse=True)
def _detected_once(monkeypatch: pytest.MonkeyPatch, local_target: Target) -> None:
    """Each detection starts a process that loads TVM (tests/unit/measure/test_detect.py)."""
    monkeypatch.setattr("mallorn.workers.device.detect_host.detect_target", lambda: local_target)


def test_where_all_is_there_every_check_has_its_line(model: Path, tmp_path: Path) -> None:
    result = run(model, "--data", tmp_path)
    assert result.exit_code == 0, result.output
    names = [line.split()[1] for line in result.stdout.splitlines() if not line.startswith(" ")]
    assert names == [
        "compiler",
        "disk",
        "target",
        "tvm",
        "kernel",
        "model",
        "sandbox",
        "cores",
        "onnxruntime",
    ]
    assert f"mallorn tune {model}" in result.stderr
    assert "2 operators; x [1, 3]" in result.stdout


# What a host answers that tuning cannot do without, and the check that fails of it.
BROKEN: dict[str, tuple[dict[str, Any], str, str]] = {
    "a kernel that does not run": (
        {"check_kernel": HostFault("no kernel can be built and run here: killed by SIGILL")},
        "kernel",
        "killed by SIGILL",
    ),
    "walls that are required and missing": (
        {"probe_sandbox_support": sandbox_support.NoSandbox("this host is without seccomp", hint="allow it")},
        "sandbox",
        "is without seccomp",
    ),
    "a full disk": ({"disk_usage": SimpleNamespace(free=1000)}, "disk", ""),
    "a model that cannot be read": (
        {"read_signature": InvalidModel("these inputs have free dimensions", hint="--input-shape x:1,3")},
        "model",
        "next: --input-shape x:1,3",
    ),
}


def check_failed(result: Result, check: str, told: str) -> None:
    assert result.exit_code == ExitCode.CHECK_FAILED
    assert f"failed   {check}" in result.stdout
    assert result.stdout.count("failed ") == 1
    assert told in result.stdout


@pytest.mark.parametrize("name", BROKEN)
def test_what_no_tuning_can_do_without_fails_the_check(
    name: str, asked: dict[str, Any], monkeypatch: pytest.MonkeyPatch, model: Path, tmp_path: Path
) -> None:
    answers, *failed = BROKEN[name]
    asked.update(answers)
    monkeypatch.setenv("MALLORN_SANDBOX", "require")
    check_failed(run(model, "--data", tmp_path / "not" / "there" / "yet"), *failed)


def test_a_host_without_a_compiler_fails_the_check(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    hide_compilers(monkeypatch, tmp_path)
    check_failed(run("--data", tmp_path), "compiler", "next: apt-get install gcc")


def test_what_is_only_useful_may_be_missing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    found = host_checks.find_spec
    monkeypatch.setattr(host_checks, "find_spec", lambda name: None if name == "onnxruntime" else found(name))
    monkeypatch.setenv("MALLORN_SANDBOX", "off")
    result = run("--data", tmp_path)
    assert result.exit_code == 0
    for told in ("missing  onnxruntime", "missing  sandbox", "unset MALLORN_SANDBOX"):
        assert told in result.stdout


@pytest.mark.parametrize(
    ("told", "way"),
    [
        ("without Landlock (Function not implemented)", "`landlock` in lsm="),
        ("without walls around signals and sockets (Landlock 4, 6 has them)", "Linux 6.12 or newer, on"),
        ("without seccomp (Operation not permitted)", "--security-opt"),
        ("without all: it could not be tried", "mallorn doctor"),
    ],
)
def test_walls_that_close_in_part_are_told_with_what_closes_them(
    asked: dict[str, Any], tmp_path: Path, told: str, way: str
) -> None:
    asked["probe_sandbox_support"] = told
    result = run("--data", tmp_path, "--json")
    assert result.exit_code == 0, "it is only worse"
    (finding,) = [each for each in json.loads(result.stdout) if each["name"] == "sandbox"]
    assert not finding["ok"]
    assert told in finding["words"]
    assert way in finding["hint"]


def test_tune_starts_nothing_on_a_machine_that_cannot_build(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, model: Path
) -> None:
    hide_compilers(monkeypatch, tmp_path)
    monkeypatch.setattr(tune, "connected_stack", lambda *_: pytest.fail("a service was started"))
    with pytest.raises(HostFault):
        host_checks.check_host(tmp_path)
    refused(mallorn("tune", model, "--data", tmp_path / "data"), "apt-get install gcc")


def clocks(cpus: Path, *khz: int) -> Path:
    """What the kernel tells of each core's clock."""
    for core, clock in enumerate(khz):
        folder = cpus / f"cpu{core}" / "cpufreq"
        folder.mkdir(parents=True)
        (folder / "cpuinfo_max_freq").write_text(f"{clock}\n")
    return cpus


@pytest.mark.parametrize("khz", [(), (5_000_000, 5_000_000), (5_100_000, 4_900_000)])
def test_cores_of_one_kind_are_no_finding(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, khz: tuple[int, ...]
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _pid: {0, 1})
    assert host_checks.check_core_speeds(clocks(tmp_path, *khz)) == "2 of one kind"


def test_slow_cores_beside_fast_ones_are_told_with_how_to_leave_them_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _pid: {0, 1, 2, 3})
    with pytest.raises(HostFault, match="2 of 4 cores are slow") as told:
        host_checks.check_core_speeds(clocks(tmp_path, 5_000_000, 5_000_000, 3_800_000, 3_800_000))
    assert "taskset -c 0,1 mallorn up" in told.value.hint


def test_tune_starts_nothing_for_a_gpu_that_is_not_there(
    asked: dict[str, Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, model: Path
) -> None:
    asked["run_with_tvm"] = NO_DRIVER
    monkeypatch.setattr(tune, "connected_stack", lambda *_: pytest.fail("a service was started"))
    refused(
        mallorn("tune", model, "--target", "cuda", "--data", tmp_path / "data"), "mallorn check --target cuda"
    )


NO_DRIVER: Final = CompletedProcess([], -11, stdout="")
NOTHING: Final = Toolchain(None, None, False, (("CUDA's compiler nvcc", "pip install 'mallorn[cuda]'"),))
WHOLE: Final = Toolchain(Path("/usr/bin/nvcc"), "libcudart.so.13", True, ())


@pytest.mark.parametrize("target", ["cuda", "nvidia/nvidia-h100"])
def test_what_a_gpu_lacks_has_a_line_each_with_the_command_that_brings_it(
    target: str, asked: dict[str, Any], tmp_path: Path
) -> None:
    asked |= {"find_toolchain": NOTHING, "run_with_tvm": NO_DRIVER}
    result = run("--target", target, "--data", tmp_path)
    assert result.exit_code == ExitCode.CHECK_FAILED
    for check, told in {"cuda": "nvcc", "driver": "libcuda.so.1", "target": "CUDA finds no GPU here"}.items():
        assert any(
            line.split()[:2] == ["failed", check] and told in line for line in result.stdout.splitlines()
        )
    assert "next: pip install 'mallorn[cuda]'" in result.stdout
    assert "docker run --gpus all" in result.stdout
    assert "mallorn check" not in result.stdout, "no check advises itself"


def test_where_a_gpu_has_all_that_it_needs_its_checks_are_well(asked: dict[str, Any], tmp_path: Path) -> None:
    answer = CompletedProcess([], 0, stdout='[0, "GPU-a", "H100", 1, "580", 90]')
    asked |= {"find_toolchain": WHOLE, "run_with_tvm": answer}
    result = run("--target", "cuda", "--data", tmp_path)
    assert result.exit_code == 0, result.output
    lines = {line.split()[1]: line for line in result.stdout.splitlines() if line.startswith("ok ")}
    assert "/usr/bin/nvcc" in lines["cuda"]
    assert "driver" in lines
    assert "sm_90a" in lines["target"]


def test_a_host_that_builds_for_a_gpu_elsewhere_needs_no_driver(
    asked: dict[str, Any], tmp_path: Path
) -> None:
    asked["find_toolchain"] = replace(WHOLE, has_driver=False)
    result = run("--target", "nvidia/nvidia-h100", "--url", "http://127.0.0.1:1", "--data", tmp_path)
    assert "missing  driver" in result.stdout


def test_nobody_is_told_of_cuda_who_did_not_ask_for_it(tmp_path: Path) -> None:
    assert "driver" not in run("--data", tmp_path).stdout


OTHER: Final = "x86_64" if platform.machine() == "aarch64" else "aarch64"
FOR_OTHER: Final = f'{{"kind":"llvm","mtriple":"{OTHER}-linux-gnu","num-cores":64}}'


def findings(*words: str) -> tuple[int, dict[str, dict[str, Any]]]:
    result = run("--json", *words)
    return result.exit_code, {each["name"]: each for each in json.loads(result.stdout)}


def test_a_host_that_cannot_link_for_another_cpu_says_what_it_lacks(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    lacks = f"zig for {OTHER} (pip install ziglang)"
    monkeypatch.setattr("mallorn.workers.process.toolchains.find_zig", lambda: None)
    code, found = findings("--target", FOR_OTHER, "--data", str(tmp_path))
    assert code == ExitCode.CHECK_FAILED
    assert found["target"]["ok"]
    assert found["linker"]["words"] == f"this host lacks {lacks}"
    assert found["linker"]["hint"] == "pip install ziglang"
