"""The product's kinds of hardware keep their contract, and the kit finds a kind that breaks it."""

from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Final

import pytest

from mallorn.core.target_kind import TargetKind
from mallorn.kinds.aarch64.kind import Aarch64
from mallorn.kinds.cuda.kind import Cuda
from mallorn.kinds.x86.kind import X86
from tests.fixtures.planted_kinds import SOUND, installed
from tests.kits.kinds import TargetKindTestCase


class TestX86(TargetKindTestCase):
    @pytest.fixture
    def kind(self) -> TargetKind:
        return X86()


class TestAarch64(TargetKindTestCase):
    @pytest.fixture
    def kind(self) -> TargetKind:
        return Aarch64()


class TestCuda(TargetKindTestCase):
    @pytest.fixture
    def kind(self) -> TargetKind:
        return Cuda()


COMPLETE: Final = "    def complete(self, attrs):\n"
PARTS: Final = '    parts = {"BuilderKind": "planted_builder:Tools"}\n'
BUILDER: Final = """
from mallorn.workers.host.builder_kind import BuilderKind, Requirement

class Tools(BuilderKind):
    def missing_tools(self):
        return "a linker"

    def requirements(self, has_device):
        yield Requirement("linker", False, "this machine lacks a linker")
"""
#: By fault: what the class adds, and the test of the kit that must fail.
FAULTS: Final = {
    "takes every target": (
        "    def owns(self, attrs):\n        return True\n",
        "test_targets_of_other_kinds_are_not_its_own",
    ),
    "counts what it completes": (
        f"    seen = 0\n{COMPLETE}        type(self).seen += 1\n"
        "        return {**attrs, 'opt-level': self.seen}\n",
        "test_answers_depend_on_the_target_alone",
    ),
    "changes what it was given": (
        f"{COMPLETE}        attrs['opt-level'] = 3\n        return attrs\n",
        "test_answers_depend_on_the_target_alone",
    ),
    "does not keep a canonical form": (
        f"{COMPLETE}        return {{**attrs, 'num-cores': attrs['num-cores'] + 1}}\n",
        "test_its_example_is_a_target_of_it_and_its_canonical_form_stays",
    ),
    "refuses without a remedy": (
        f"{COMPLETE}        if 'mcpu' not in attrs:\n            raise InvalidTarget('mcpu')\n"
        "        return attrs\n",
        "test_a_wrong_attribute_is_refused_by_its_name_with_a_remedy_or_leaves_a_target",
    ),
    "fails on an attribute that is absent": (
        f"{COMPLETE}        attrs['mtriple'].strip()\n        return attrs\n"
        "    def owns(self, attrs):\n        return super().owns(attrs) or 'mtriple' not in attrs\n",
        "test_a_wrong_attribute_is_refused_by_its_name_with_a_remedy_or_leaves_a_target",
    ),
    "has no limit": (
        f"{COMPLETE}        return {{'max_num_threads': 0, **attrs}}\n",
        "test_limits_are_positive",
    ),
    "lets all variables into the sandbox": (
        '    environment = ("",)\n',
        "test_its_figures_and_names_are_usable",
    ),
    "names a part that is none": (
        '    parts = {"MachineKind": "planted:Planted"}\n',
        "test_every_part_that_it_names_loads_and_is_of_its_class",
    ),
    "loads a part with its module": (
        f"{PARTS}import planted_builder\n",
        "test_a_target_of_another_kind_loads_none_of_its_parts",
    ),
    "lacks a tool and names no command": (
        PARTS,
        "test_what_a_host_lacks_to_build_or_measure_is_named_with_a_command",
    ),
    "is for an instruction set that nothing links": (
        "    def toolchain(self, attrs):\n        return 's390x'\n",
        "test_every_host_says_what_it_lacks_for_its_toolchain",
    ),
}


def planted(folder: Path, monkeypatch: pytest.MonkeyPatch, fault: str) -> Iterator[TargetKind]:
    with installed(folder, monkeypatch, planted=SOUND + fault, planted_builder=BUILDER):
        kind: TargetKind = import_module("planted").Planted()
        yield kind


@pytest.fixture(params=FAULTS)
def fault(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def broken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: str) -> Iterator[TargetKind]:
    yield from planted(tmp_path, monkeypatch, FAULTS[fault][0])


@pytest.fixture
def sound(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[TargetKind]:
    yield from planted(tmp_path, monkeypatch, "")


def test_the_kit_finds_a_kind_that_breaks_its_contract(broken: TargetKind, fault: str) -> None:
    with pytest.raises((AssertionError, TypeError, KeyError)):
        getattr(TargetKindTestCase(), FAULTS[fault][1])(broken)


def test_the_kit_lets_pass_the_same_kind_without_a_fault(sound: TargetKind) -> None:
    for name in {name for _, name in FAULTS.values()}:
        getattr(TargetKindTestCase(), name)(sound)
