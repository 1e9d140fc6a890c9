"""What ptxas prints of kernels is read and joined with the sizes of their launches."""

import pytest

from mallorn.kinds.cuda.compiler.compile_cuda import DeviceCode
from mallorn.kinds.cuda.compiler.cuda_kernel_resources import (
    CannotLaunch,
    check_launch,
    combine_kernel_resources,
    read_ptxas,
)

LOG = """ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function 'first_kernel' for 'sm_80'
ptxas info    : Function properties for first_kernel
    96 bytes stack frame, 88 bytes spill stores, 84 bytes spill loads
ptxas info    : Used 64 registers, used 1 barriers, 96 bytes cumulative stack size, 8192 bytes smem, 372 bytes cmem[0]
ptxas info    : Compiling entry function 'second_kernel' for 'sm_80'
ptxas info    : Function properties for second_kernel
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 255 registers, 380 bytes cmem[0]
ptxas info    : Function properties for __internal_trig_reduction_slowpathf
    40 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
"""  # noqa: E501 - as ptxas prints it
LAUNCHES = {
    "first_kernel": {"blockIdx.x": 100, "threadIdx.x": 32, "threadIdx.y": 8},
    "second_kernel": {
        "blockIdx.x": 0,
        "blockIdx.y": 4,
        "threadIdx.x": 512,
        "tirx.use_dyn_shared_memory": 9000,
    },
}


def test_each_kernel_has_its_own_figures() -> None:
    first, second = combine_kernel_resources([DeviceCode(b"", "", LOG)], LAUNCHES, "sm_80")
    assert (first.name, first.registers, first.threads, first.blocks) == ("first_kernel", 64, 256, 100)
    assert (first.spill_bytes, first.stack_bytes, first.shared_bytes) == (88 + 84, 96, 8192)
    assert (first.blocks_per_sm, first.warps_per_sm) == (4, 32), "65536 registers hold four blocks"
    assert (second.registers, second.spill_bytes, second.stack_bytes) == (255, 0, 0)
    assert (second.static_shared_bytes, second.dynamic_shared_bytes) == (0, 9000)
    assert second.blocks == 0, "one extent is known at run time only"


def test_more_registers_than_there_are_is_refused_by_name() -> None:
    kernels = combine_kernel_resources([DeviceCode(b"", "", LOG)], LAUNCHES, "sm_80")
    check_launch(kernels[:1], "sm_80")
    with pytest.raises(
        CannotLaunch, match="second_kernel cannot launch on sm_80: a block has 512 threads of 255"
    ):
        check_launch(kernels, "sm_80")


@pytest.mark.parametrize(
    ("dynamic_bytes", "launches"), [(40_960, True), (40_961, False), (49_151, False), (49_152, True)]
)
def test_shared_memory_that_tvms_runtime_does_not_ask_for_is_refused(
    dynamic_bytes: int, launches: bool
) -> None:
    """On an H200 eleven of 216 kernels were of this kind, and the driver refused exactly these."""
    launch = {"blockIdx.x": 1, "threadIdx.x": 64, "tirx.use_dyn_shared_memory": dynamic_bytes}
    (first, _) = combine_kernel_resources([DeviceCode(b"", "", LOG)], {"first_kernel": launch}, "sm_90a")
    assert first.static_shared_bytes == 8_192
    assert bool(first.blocks_per_sm) is launches
    if not launches:
        with pytest.raises(CannotLaunch, match="only if 49152 of them are dynamic"):
            check_launch([first], "sm_90a")


@pytest.mark.parametrize("log", ["", "ptxas info    : Used", "    1 bytes stack frame", "ptxas fatal   : no"])
def test_other_text_tells_of_no_kernel(log: str) -> None:
    assert read_ptxas(log) == {}
