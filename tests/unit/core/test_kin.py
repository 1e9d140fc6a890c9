"""Whose knowledge is the better prior: the same vectors come first, then the processor, then its cores."""

import json

import pytest

from mallorn.core.target_distance import distance
from mallorn.core.targets import Target, parse_target


def cpu(mcpu: str, cores: int = 2, **attrs: str) -> Target:
    return parse_target({"kind": "llvm", "mcpu": mcpu, "num-cores": cores, **attrs})


HERE = cpu("znver4", 4)


@pytest.mark.parametrize(
    ("nearer", "farther"),
    [
        (HERE, cpu("znver4", 2)),
        (cpu("znver4", 2), cpu("znver4", 64)),
        (cpu("znver4", 64), cpu("sapphirerapids", 4)),
        (cpu("sapphirerapids", 64), cpu("haswell", 4)),
        (cpu("x86-64-v4"), cpu("x86-64-v3")),
    ],
)
def test_of_two_targets_the_nearer(nearer: Target, farther: Target) -> None:
    near, far = distance(HERE, nearer), distance(HERE, farther)
    assert near is not None
    assert far is not None
    assert near < far


def test_it_is_the_same_from_either_side() -> None:
    assert distance(HERE, cpu("haswell", 8)) == distance(cpu("haswell", 8), HERE)


@pytest.mark.parametrize(
    ("other", "alike"),
    [
        (cpu("sapphirerapids", 4), True),
        (cpu("znver4", 2), False),
        (cpu("haswell", 4), False),
    ],
)
def test_schedules_are_cut_alike_for_the_same_vectors_and_cores(other: Target, alike: bool) -> None:
    far = distance(HERE, other)
    assert far is not None
    assert far.has_same_tile_sizes == alike


@pytest.mark.parametrize(
    "stranger", [{"kind": "cuda", "arch": "sm_90"}, json.loads(HERE.text) | {"device": "simulated"}]
)
def test_devices_of_another_kind_and_virtual_devices_are_no_kin(stranger: dict[str, object]) -> None:
    assert distance(HERE, parse_target(stranger)) is None
