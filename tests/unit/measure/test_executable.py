"""Which targets this host executes, and the reason in words where it does not."""

import json
import subprocess
from typing import Any

import pytest

from mallorn.core.errors import InvalidTarget
from mallorn.core.targets import parse_target
from workers.device import target_support
from workers.device.detect_host import available_cores, detect_target
from workers.device.target_support import check_executable, why_not

HASWELL = ("avx2", "fma", "sse4.2", "slow-3ops-lea", "fsgsbase")
SKYLAKE = (*HASWELL, "avx512f", "avx512vnni")
FLAGS = "pni sse4_2 avx2 fma"


@pytest.fixture
def host(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine like haswell, with an LLVM that knows two CPUs."""
    monkeypatch.setattr(target_support, "cpu_info", lambda: {"flags": FLAGS})
    monkeypatch.setattr(target_support, "ask_tvm", answer_like_llvm)
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
        ({"mtriple": "aarch64-linux-gnu"}, "the target is for aarch64, this machine is x86_64"),
        ({"num-cores": 4096}, "the target has 4096 cores"),
    ],
)
def test_a_target_needs_no_more_than_the_host_has(attrs: dict[str, Any], why: str) -> None:
    found = why_not(cpu(**attrs))
    assert found.startswith(why)
    assert bool(found) == bool(why)


@pytest.mark.parametrize(("code", "why"), [(-11, "LLVM cannot read it"), (1, "")])
def test_an_llvm_that_dies_refuses_and_one_that_is_not_there_does_not(
    monkeypatch: pytest.MonkeyPatch, code: int, why: str
) -> None:
    monkeypatch.setattr(target_support, "ask_tvm", lambda *_: subprocess.CompletedProcess([], code))
    assert why_not(cpu(mcpu="haswell")) == why


@pytest.mark.parametrize(
    ("told", "why"),
    [
        ({"there": False, "version": "", "arch": "sm_90"}, "it has no cuda device"),
        ({"there": True, "version": "9.0", "arch": "sm_90a"}, ""),
        ({"there": True, "version": "8.9", "arch": "sm_80"}, ""),
        ({"there": True, "version": "8.0", "arch": "sm_90"}, "the target is for sm_90, its GPU is sm_80"),
    ],
)
def test_a_gpu_must_be_there_and_of_the_kind(
    monkeypatch: pytest.MonkeyPatch, told: dict[str, Any], why: str
) -> None:
    answer = subprocess.CompletedProcess([], 0, stdout=json.dumps(told))
    monkeypatch.setattr(target_support, "ask_tvm", lambda *_: answer)
    assert why_not(parse_target({"kind": "cuda"})) == why


def test_this_host_executes_its_own_target_and_the_least_of_its_kind() -> None:
    assert why_not(detect_target()) == ""
    assert why_not(cpu()) == ""


def test_who_must_execute_a_target_is_told_what_is_missing() -> None:
    with pytest.raises(InvalidTarget, match=f"this machine has {available_cores()}"):
        check_executable(cpu(**{"num-cores": 4096}))
