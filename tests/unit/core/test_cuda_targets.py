"""CUDA targets: every way to name one leads to one text with all attributes."""

import json
from collections.abc import Mapping
from typing import Any

import pytest

from mallorn.core.errors import InvalidTarget
from mallorn.core.targets import Target, parse_target

LIMITS = {
    "max_threads_per_block": 1024,
    "max_num_threads": 1024,
    "max_shared_memory_per_block": 49152,
    "registers_per_block": 65536,
    "thread_warp_size": 32,
}
AMPERE = {"kind": "cuda", "arch": "sm_80", **LIMITS}
HOPPER = {"kind": "cuda", "arch": "sm_90a", **LIMITS}


@pytest.mark.parametrize(
    ("named", "attrs"),
    [
        ("cuda -arch=sm_80", AMPERE),
        ('{"kind":"cuda","arch":"sm_80"}', AMPERE),
        ({"arch": "sm_80", "kind": "cuda", "max_threads_per_block": 1024}, AMPERE),
        (AMPERE, AMPERE),
        ("nvidia/nvidia-h100", HOPPER),
        ({"tag": "nvidia/nvidia-h100"}, HOPPER),
        ('{"tag":"nvidia/nvidia-h100"}', HOPPER),
        ({"kind": "cuda", "tag": "nvidia/nvidia-h100"}, HOPPER),
        ({"kind": "cuda", "arch": "sm_90a"}, HOPPER),
    ],
)
def test_every_name_of_a_gpu_leads_to_one_text(
    named: str | Mapping[str, object], attrs: dict[str, object]
) -> None:
    assert parse_target(named).text == json.dumps(attrs, sort_keys=True, separators=(",", ":"))


def test_attributes_that_are_given_win() -> None:
    given = {"arch": "sm_90", "l2_cache_size_bytes": 1, "max_threads_per_block": 256, "libs": ["cublas"]}
    found = parse_target({"tag": "nvidia/nvidia-h100", **given}).attrs
    assert found == {**HOPPER, **given}


REFUSED: list[tuple[Any, str, str]] = [
    ("cuda", "needs an architecture", "mallorn check --target cuda"),
    ({"kind": "cuda", **LIMITS}, "needs an architecture", "sm_80"),
    ("nvidia/h100", "it has nvidia/nvidia-h100", "sm_80"),
    ("nvidia/geforce-rtx-4900", "nvidia/geforce-rtx-4090", "sm_80"),
    ("nvidia/" + "x" * 100_000, "TVM has no GPU tag", "sm_80"),
    ({"tag": "nvidia/nvidia-v100"}, "nvcc 13 no longer compiles for sm_70", "sm_75"),
    ({**AMPERE, "arch": "sm_61"}, "nvcc 13 no longer compiles for sm_61", "sm_75"),
    ({"kind": "cuda", "arch": "sm_130"}, "unknown GPU architecture 'sm_130'", "sm_90a"),
    ({"kind": "cuda", "arch": "sm_" + "9" * 10_000}, "unknown GPU architecture", "sm_90a"),
    ({"kind": "cuda", "tag": 3}, "tag is not a text", "nvidia/nvidia-h100"),
]


@pytest.mark.parametrize(("named", "message", "hint"), REFUSED)
def test_what_names_no_gpu_is_refused_with_a_next_step(named: Any, message: str, hint: str) -> None:
    with pytest.raises(InvalidTarget) as caught:
        parse_target(named)
    assert message in caught.value.message
    assert hint in caught.value.hint


def test_an_unknown_architecture_is_taken_with_all_its_limits() -> None:
    assert parse_target({**AMPERE, "arch": "sm_130"}).attrs["arch"] == "sm_130"


def test_a_stored_target_with_a_tag_is_read_as_it_is_and_named_like_any_other() -> None:
    stored = Target('{"kind":"cuda","tag":"nvidia/nvidia-h100"}')
    assert stored.kind == "cuda"
    assert parse_target(stored.text).attrs == HOPPER
