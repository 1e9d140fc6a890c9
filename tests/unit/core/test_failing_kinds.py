"""A package whose kind of hardware does not load stops nothing but targets of that kind."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from mallorn.cli.host_checks import check_kinds, run_check
from mallorn.core.errors import InvalidTarget
from mallorn.core.registry import find_plugins, list_kinds, locations
from mallorn.core.targets import kind_of_word, parse_target
from mallorn.graphc.core.graph_kind import GraphKind, graph_kind, graph_kinds
from tests.fixtures.planted_kinds import SOUND, installed

OWN = {"x86", "aarch64", "cuda"}
RISCV = {"kind": "llvm", "mtriple": "riscv64-linux-gnu", "num-cores": 1}
SOURCES = {
    "import planted_that_is_not_here\n": "ModuleNotFoundError: No module named 'planted_that_is_not_here'",
    "raise SystemExit(3)\n": "SystemExit: 3",
    "Planted = dict\n": "AttributeError: 'dict' object has no attribute 'part'",
    f"{SOUND}    def __init__(self):\n        1 / 0\n": "ZeroDivisionError: division by zero",
    "from mallorn.core.target_kind import TargetKind as Planted\n": "abstract",
    f"{SOUND}    del example\n": "AttributeError: 'Planted' object has no attribute 'example'",
}


@pytest.fixture(params=SOURCES, ids=SOURCES.values())
def reason(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Install a package whose kind does not load; the reason."""
    with installed(tmp_path, monkeypatch, planted=request.param):
        assert find_plugins("kind") == {"planted": "planted:Planted"}
        yield SOURCES[request.param]


def test_other_kinds_are_there(reason: str) -> None:
    assert reason
    assert {kind.name for kind in list_kinds()} == OWN
    assert parse_target({"kind": "cuda", "arch": "sm_80"}).hardware.name == "cuda"
    assert locations("lowered_features")
    assert kind_of_word("planted") is None


@pytest.mark.parametrize("target", [RISCV, {"kind": "planted"}, "planted"], ids=str)
def test_a_target_of_it_is_refused_and_the_package_named(
    reason: str, target: str | dict[str, object]
) -> None:
    with pytest.raises(InvalidTarget, match="the kind of hardware planted does not load: ") as refused:
        parse_target(target)
    assert reason in refused.value.message
    assert refused.value.hint == "repair planted:Planted"


def test_the_doctor_names_it(reason: str) -> None:
    finding = run_check("kinds", check_kinds)
    assert not finding.ok
    assert reason in finding.words
    assert "docs/kinds.md" in finding.hint


def test_the_doctor_names_all_kinds_that_load(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with installed(tmp_path, monkeypatch, planted=SOUND):
        assert run_check("kinds", check_kinds).words == "of hardware: aarch64, cuda, planted, x86"


def test_a_part_of_the_graph_compiler_that_does_not_load_stops_its_targets_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with installed(tmp_path, monkeypatch, planted_graph="import planted_that_is_not_here\n"):
        assert set(graph_kinds()) == {"cuda"}
        assert type(graph_kind("llvm")) is GraphKind
        with pytest.raises(ImportError, match=r"planted_graph:Planted does not load: .*_not_here.*uninstall"):
            graph_kind("hexagon")
        assert not run_check("kinds", check_kinds).ok
    assert run_check("kinds", check_kinds).ok
