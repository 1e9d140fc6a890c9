"""Every task of a network becomes device code for three generations of GPUs, without a GPU."""

import pytest

from benchmarks.cubins import ARCHS, NETWORKS, rows
from tests.fixtures.cuda import needs_nvcc


def check(network: str, arch: str) -> int:
    """Assert that each kernel of a network can launch; how many tasks there are."""
    found = list(rows(network, arch))
    for row in found:
        assert "error" not in row, row
        assert row["kernels"], row
        assert all(0 < kernel["registers"] <= 255 for kernel in row["kernels"])
        assert all(kernel["blocks_per_sm"] > 0 for kernel in row["kernels"])
    return len(found)


@needs_nvcc
@pytest.mark.parametrize("arch", ARCHS)
def test_three_tasks_have_kernels_that_can_launch(arch: str) -> None:
    assert check("mlp", arch) == 3


@needs_nvcc
@pytest.mark.long
@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize("network", sorted(NETWORKS.keys() - {"mlp"}))
def test_all_tasks_of_nine_networks_have_kernels_that_can_launch(network: str, arch: str) -> None:
    assert check(network, arch) > 3
