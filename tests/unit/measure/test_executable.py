"""Which targets this host executes, and the reason in words where it does not."""

import json
import subprocess
from typing import Any

import pytest

from mallorn.core.errors import InvalidTarget
from mallorn.core.targets import Target, parse_target
from mallorn.kinds.cuda.device import nvidia_driver
from mallorn.workers.device import detect_host, target_support
from mallorn.workers.device.detect_host import available_cores, detect_target
from mallorn.workers.device.target_support import check_executable, find_unsupported_reason, resolve_target
from tests.fixtures.made_up_gpus import MadeUpGpus

HASWELL = ("avx2", "fma", "sse4.2", "slow-3ops-lea", "fsgsbase")
SKYLAKE = (*HASWELL, "avx512f", "avx512vnni")
FLAGS = "pni sse4_2 avx2 fma"


def gpu(capability: int) -> list[object]:
    return [0, "GPU-a", "H100", 80 << 30, "580.159.04", capability]


@pytest.fixture
def host(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine like haswell, with an LLVM that knows two CPUs."""
    monkeypatch.setattr(target_support, "cpu_info", lambda: {"flags": FLAGS})
    monkeypatch.setattr(detect_host, "run_with_tvm", answer_like_llvm)
    monkeypatch.setattr(target_support.os, "uname", lambda: type("Uname", (), {"machine": "x86_64"}))


def answer_like_llvm(_program: str, text: str) -> "subprocess.CompletedProcess[str]":
    attrs = json.loads(text)
    table = {"haswell": HASWELL, "skylake-avx512": SKYLAKE, "": ("sse",)}
    cpu = attrs.get("mcpu", "")
    features = [*table.get(cpu, ()), *(name[1:] for name in attrs.get("mattr", []) if name == "+avx512f")]
    told = {"known": cpu in table, "cpus": [*table], "features": features}
    return subprocess.CompletedProcess([], 0, stdout=f"chatter\n{json.dumps(told)}\n")


def cpu(**attrs: Any) -> Any:
    return parse_target({"kind": "llvm", "num-cores": 1, **attrs})


@pytest.mark.usefixtures("host")
@pytest.mark.parametrize(
    ("attrs", "why"),
    [
        ({"mcpu": "haswell"}, ""),
        ({"mcpu": "haswell", "mtriple": "x86_64-linux-gnu"}, ""),
        ({"mcpu": "skylake-avx512"}, "its CPU lacks avx512f, avx512vnni"),
        ({"mcpu": "skylake-avx512", "mattr": ["-avx512f", "-avx512vnni"]}, ""),
        ({"mcpu": "haswell", "mattr": ["+avx512f"]}, "its CPU lacks avx512f"),
        ({"mcpu": "haswell", "mattr": ["+wings"]}, "LLVM knows no feature wings"),
        ({"mcpu": "haswel"}, "LLVM knows no CPU haswel here; it knows haswell"),
        ({"mtriple": "aarch64-linux-gnu"}, "the target is for aarch64, but this machine is x86_64"),
        ({"num-cores": 4096}, "the target has 4096 cores"),
    ],
)
def test_a_target_needs_no_more_than_the_host_has(attrs: dict[str, Any], why: str) -> None:
    found = find_unsupported_reason(cpu(**attrs))
    assert found.startswith(why)
    assert bool(found) == bool(why)


@pytest.mark.parametrize(("code", "why"), [(-11, "LLVM cannot read the target"), (1, "")])
def test_an_llvm_that_dies_refuses_and_one_that_is_not_there_does_not(
    monkeypatch: pytest.MonkeyPatch, code: int, why: str
) -> None:
    monkeypatch.setattr(detect_host, "run_with_tvm", lambda *_: subprocess.CompletedProcess([], code))
    assert find_unsupported_reason(cpu(mcpu="haswell")) == why


NO_DRIVER = "libcuda.so.1: cannot open shared object file"


@pytest.mark.parametrize(
    ("capability", "target", "why"),
    [
        (90, "nvidia/nvidia-h100", ""),
        (89, "cuda -arch=sm_80", ""),
        (80, "nvidia/nvidia-h100", "the target is for sm_90a, its GPU is sm_80"),
        (86, "cuda -arch=sm_89", "the target is for sm_89, its GPU is sm_86"),
        (103, "cuda -arch=sm_100a", "the target is for sm_100a, its GPU is sm_103"),
    ],
)
def test_a_gpu_must_run_what_is_compiled_for_the_target(
    monkeypatch: pytest.MonkeyPatch, capability: int, target: str, why: str
) -> None:
    answer_about_gpu(monkeypatch, gpu(capability))
    assert find_unsupported_reason(parse_target(target)) == why


def test_a_gpu_must_be_there(monkeypatch: pytest.MonkeyPatch) -> None:
    answer_about_gpu(monkeypatch, NO_DRIVER)
    assert (
        find_unsupported_reason(parse_target("nvidia/nvidia-h100")) == f"CUDA finds no GPU here: {NO_DRIVER}"
    )


@pytest.mark.parametrize(
    ("stored", "why"),
    [
        ('{"kind":"cuda","tag":"nvidia/nvidia-h100"}', "the target is for sm_90a, its GPU is sm_80"),
        ('{"kind":"cuda","tag":"nvidia/nvidia-a100"}', ""),
        ('{"kind":"cuda","tag":"nvidia/nvidia-v100"}', "nvcc 13 no longer compiles for sm_70"),
        ('{"kind":"cuda"}', "a CUDA target needs an architecture"),
    ],
)
def test_a_gpu_is_compared_with_the_tag_of_a_target_that_was_stored_earlier(
    monkeypatch: pytest.MonkeyPatch, stored: str, why: str
) -> None:
    answer_about_gpu(monkeypatch, gpu(80))
    found = find_unsupported_reason(Target(stored))
    assert found.startswith(why)
    assert bool(found) == bool(why)


def test_cuda_is_the_gpu_of_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    answer_about_gpu(monkeypatch, gpu(90))
    assert resolve_target("cuda") == parse_target("nvidia/nvidia-h100")


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (NO_DRIVER, NO_DRIVER),
        (gpu(61), "no longer compiles for sm_61"),
    ],
)
def test_cuda_without_a_gpu_that_can_be_used_is_refused(
    monkeypatch: pytest.MonkeyPatch, answer: str | list[object], message: str
) -> None:
    answer_about_gpu(monkeypatch, answer)
    with pytest.raises(InvalidTarget, match=message) as caught:
        resolve_target("cuda")
    assert caught.value.hint


def test_a_process_that_dies_of_the_driver_finds_no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        nvidia_driver, "run_with_tvm", lambda *_: subprocess.CompletedProcess([], -11, stdout="")
    )
    assert "died" in find_unsupported_reason(parse_target("nvidia/nvidia-h100"))


def answer_about_gpu(monkeypatch: pytest.MonkeyPatch, answer: str | list[object]) -> None:
    done = subprocess.CompletedProcess([], 0, stdout=f"chatter\n{json.dumps(answer)}\n")
    monkeypatch.setattr(nvidia_driver, "run_with_tvm", lambda *_: done)


def test_the_driver_is_asked_for_the_capability_of_the_first_gpu(
    made_up_gpus: MadeUpGpus, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in made_up_gpus.env.items():
        monkeypatch.setenv(name, value)
    assert resolve_target("cuda") == parse_target('{"kind": "cuda", "arch": "sm_80"}')


@pytest.mark.parametrize(("code", "reason"), [(2, "out of memory (2)"), (100, "no visible GPU")])
def test_the_drivers_own_reason_is_told(
    made_up_gpus: MadeUpGpus, monkeypatch: pytest.MonkeyPatch, code: int, reason: str
) -> None:
    for name, value in made_up_gpus.env.items():
        monkeypatch.setenv(name, value)
    made_up_gpus.fail("init", code)
    assert find_unsupported_reason(parse_target("nvidia/geforce-rtx-4090")).endswith(reason)


def test_this_host_executes_its_own_target_and_the_least_of_its_kind() -> None:
    assert find_unsupported_reason(detect_target()) == ""
    assert find_unsupported_reason(cpu()) == ""


def test_who_must_execute_a_target_is_told_what_is_missing() -> None:
    with pytest.raises(InvalidTarget, match=f"this machine has {available_cores()}"):
        check_executable(cpu(**{"num-cores": 4096}))
