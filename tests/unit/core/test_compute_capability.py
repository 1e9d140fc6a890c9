"""Limits and occupancy of CUDA architectures, as `cuda_occupancy.h` of CUDA 13 computes them."""

import pytest

from mallorn.core.errors import InvalidTarget
from mallorn.kinds.cuda.compute_capability import KNOWN_ARCHS, arch_of_gpu, capability, runs_on


@pytest.mark.parametrize(
    ("arch", "threads", "registers", "shared_bytes", "blocks"),
    [
        ("sm_75", 128, 32, 0, 8),  # threads
        ("sm_75", 64, 32, 0, 16),  # blocks
        ("sm_75", 128, 32, 24_000, 2),  # shared memory
        ("sm_80", 256, 64, 0, 4),  # registers
        ("sm_80", 256, 65, 0, 3),  # 65 registers are allocated as 72
        ("sm_86", 128, 32, 34_000, 2),  # with 1 KiB that the driver takes in each block
        ("sm_89", 32, 16, 0, 24),
        ("sm_90a", 128, 168, 0, 3),
        ("sm_90a", 384, 168, 232_448, 1),
        ("sm_120", 1024, 32, 0, 1),
    ],
)
def test_blocks_that_a_multiprocessor_holds(
    arch: str, threads: int, registers: int, shared_bytes: int, blocks: int
) -> None:
    assert capability(arch).resident_blocks(threads, registers, shared_bytes) == blocks


@pytest.mark.parametrize(
    ("threads", "registers", "shared_bytes"),
    [(1025, 32, 0), (128, 256, 0), (1024, 65, 0), (128, 32, 101_377)],
)
def test_a_kernel_beyond_a_limit_of_the_gpu_cannot_launch(
    threads: int, registers: int, shared_bytes: int
) -> None:
    assert capability("sm_89").resident_blocks(threads, registers, shared_bytes) == 0


def test_shared_memory_that_a_block_may_opt_in_to() -> None:
    sizes = {arch: capability(arch).shared_per_block_optin for arch in ("sm_75", "sm_80", "sm_89", "sm_90a")}
    assert sizes == {"sm_75": 65_536, "sm_80": 166_912, "sm_89": 101_376, "sm_90a": 232_448}


def test_each_known_architecture_has_limits_under_its_own_name() -> None:
    assert [capability(arch).arch for arch in KNOWN_ARCHS] == list(KNOWN_ARCHS)


def test_an_architecture_that_nvcc_no_longer_compiles_is_refused() -> None:
    with pytest.raises(InvalidTarget, match="nvcc 13 no longer compiles for sm_70"):
        capability("sm_70")


@pytest.mark.parametrize("arch", ["sm_130", "sm_80a", "sm_90f", "sm_", "gfx90a", "90"])
def test_an_unknown_architecture_is_refused_with_the_known_ones(arch: str) -> None:
    with pytest.raises(InvalidTarget) as caught:
        capability(arch)
    assert arch in caught.value.message
    assert "sm_90a" in caught.value.hint


@pytest.mark.parametrize(
    ("arch", "number", "runs"),
    [
        ("sm_80", 80, True),
        ("sm_80", 89, True),  # the same major version, and no lower minor one
        ("sm_89", 86, False),
        ("sm_80", 90, False),
        ("sm_90a", 90, True),
        ("sm_100a", 103, False),  # a suffix is for exactly one version
        ("sm_100f", 103, False),
        ("sm_100", 103, True),
        ("sm_100", 110, False),
        ("sm_86", 87, False),  # Orin and desktop GPUs do not run each other's code
        ("sm_87", 89, False),
        ("sm_87", 87, True),
        ("gfx90a", 90, False),
    ],
)
def test_a_gpu_runs_code_of_its_major_version_up_to_its_minor_one(arch: str, number: int, runs: bool) -> None:
    assert runs_on(arch, number) is runs


@pytest.mark.parametrize(("number", "arch"), [(80, "sm_80"), (90, "sm_90a"), (120, "sm_120")])
def test_the_architecture_of_a_gpu_is_that_of_tvms_tags(number: int, arch: str) -> None:
    assert arch_of_gpu(number) == arch


def test_a_gpu_that_is_too_old_or_too_new_has_no_architecture() -> None:
    for number in (61, 130):
        with pytest.raises(InvalidTarget, match=f"sm_{number}"):
            arch_of_gpu(number)
