"""Which compiler links a library: this machine's own, zig's for another CPU, or none with a sentence."""

import sys
from typing import Any

import pytest
import tvm

from mallorn.graphc.export.build_library import GLIBC, cross_compiler
from mallorn.graphc.export.export_checks import Refused


def target(triple: str) -> Any:
    return tvm.target.Target({"kind": "llvm", "mtriple": triple, "num-cores": 1})


@pytest.fixture
def on(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A machine with another CPU, with zig or without."""

    def be(machine: str, has_zig: bool = True) -> None:
        monkeypatch.setattr("platform.machine", lambda: machine)
        found = object() if has_zig else None
        monkeypatch.setattr("mallorn.graphc.export.build_library.find_spec", lambda _name: found)

    return be


def test_for_its_own_cpu_a_machine_needs_nothing(on: Any) -> None:
    on("x86_64", has_zig=False)
    assert cross_compiler(target("x86_64-unknown-linux-gnu")) == []


@pytest.mark.parametrize(
    ("here", "there"), [("x86_64", "aarch64"), ("aarch64", "x86_64"), ("x86_64", "riscv64")]
)
def test_zig_links_for_the_other_cpu_both_ways(on: Any, here: str, there: str) -> None:
    on(here)
    command = cross_compiler(target(f"{there}-linux-gnu"))
    assert command == [sys.executable, "-m", "ziglang", "cc", "-target", f"{there}-linux-gnu.{GLIBC}"]


def test_where_zig_is_missing_the_command_that_brings_it_is_said(on: Any) -> None:
    on("x86_64", has_zig=False)
    with pytest.raises(Refused, match="pip install ziglang"):
        cross_compiler(target("aarch64-linux-gnu"))
