"""An error of CUDA is its candidate's own failure, unless the GPU itself failed; the job goes on."""

from collections.abc import Callable
from unittest.mock import Mock

import pytest
from tvm.error import RPCError

from mallorn.core.outcomes import Outcome
from mallorn.core.targets import parse_target
from mallorn.kinds.cuda.device.cuda_device import GPU_FAILED, explain_cuda_error, remove_kernel_source
from mallorn.workers.device.rpc_handshake import DEATH_NOTICE
from tests.fixtures.faulty_device import FaultyDevice, FaultySession, offering, raises
from tests.unit.measure.test_faulty_device import timing_with, tried

GPU = parse_target({"kind": "cuda", "arch": "sm_90a"})
# Of TVM 0.27: TVM_FFI_CHECK_CUDA_ERROR, CUDA_DRIVER_CALL and CUDAWrappedFunc in its sources.
RUNTIME = "RuntimeError: CUDA Runtime Error: {} (700): an error was encountered"
DRIVER = "CUDAError: cuModuleLoadData(&(module_[device_id]), code_.data()) failed with error: {}"
LAUNCH = (
    "InternalError: CUDALaunch Error: {}\n grid=(64,1,1),  block=(2048,1,1)\n"
    "// func_name=main_kernel\n// CUDA Source\n// -----------\nint cudaErrorUnknown = CUDA_ERROR_UNKNOWN;"
)
CANDIDATES = [
    RUNTIME.format("cudaErrorMemoryAllocation"),
    RUNTIME.format("cudaErrorIllegalAddress"),
    RUNTIME.format("cudaErrorMisalignedAddress"),
    RUNTIME.format("cudaErrorLaunchFailure"),
    RUNTIME.format("cudaErrorIllegalInstruction"),
    LAUNCH.format("CUDA_ERROR_INVALID_VALUE"),
    LAUNCH.format("CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES"),
    LAUNCH.format("CUDA_ERROR_ILLEGAL_ADDRESS"),
    LAUNCH.format("CUDA_ERROR_OUT_OF_MEMORY"),
    DRIVER.format("CUDA_ERROR_NO_BINARY_FOR_GPU"),
    DRIVER.format("CUDA_ERROR_UNSUPPORTED_PTX_VERSION"),
    "InternalError: Failed to set the allowed dynamic shared memory size to 240000",
]
DEVICES = [
    RUNTIME.format("cudaErrorECCUncorrectable"),
    RUNTIME.format("cudaErrorDevicesUnavailable"),
    RUNTIME.format("cudaErrorUnknown"),
    DRIVER.format("CUDA_ERROR_SYSTEM_DRIVER_MISMATCH"),
    DRIVER.format("CUDA_ERROR_NOT_INITIALIZED"),
]
TIMEOUTS = [RUNTIME.format("cudaErrorLaunchTimeout"), LAUNCH.format("CUDA_ERROR_LAUNCH_TIMEOUT")]


@pytest.mark.parametrize("text", CANDIDATES)
def test_an_error_of_a_candidate_is_told_from_those_of_the_gpu(text: str) -> None:
    error = explain_cuda_error(text)
    assert error is not None
    assert not error.timed_out
    assert not error.message.startswith(GPU_FAILED)


@pytest.mark.parametrize("text", ["", "InternalError: Check failed: CUDA_ERROR", "not cudaErrorlike"])
def test_other_errors_are_none_of_cuda(text: str) -> None:
    assert explain_cuda_error(text) is None


def test_a_message_is_without_the_source_of_the_kernel() -> None:
    assert remove_kernel_source(CANDIDATES[5]).endswith("block=(2048,1,1)")


def sticky(text: str, last_words: str = f"{DEATH_NOTICE} killed by SIGABRT") -> FaultyDevice:
    """A session that tells its error and is gone: TVM aborts it where it cannot free its memory."""

    def fail(session: FaultySession) -> None:
        session.dead, session.last_words = True, last_words
        raise RPCError(f"Error caught from RPC call:\n{text}")

    return FaultyDevice("mallorn.time_slices", fail)


@pytest.mark.parametrize("text", CANDIDATES)
def test_a_candidate_that_takes_its_session_down_has_failed_and_the_next_is_timed(text: str) -> None:
    with offering(sticky(text)) as runner:
        timing = timing_with(runner, "racing", GPU)
        first, second = tried(timing), tried(timing)
    assert first is not None
    assert first.outcome is Outcome.RUN_ERROR
    assert "int cudaErrorUnknown" not in first.error
    assert second is not None, "in a fresh session"
    assert second.outcome is Outcome.OK


@pytest.mark.parametrize("text", TIMEOUTS)
def test_a_kernel_that_the_driver_ends_was_too_slow(text: str) -> None:
    with offering(sticky(text)) as runner:
        trial = tried(timing_with(runner, "racing", GPU))
    assert trial is not None
    assert trial.outcome is Outcome.RUN_TIMEOUT


@pytest.mark.parametrize("text", DEVICES)
def test_a_gpu_that_its_device_calls_failed_is_not_its_candidate_s_fault(text: str) -> None:
    with offering(sticky(text, last_words=text)) as runner:
        assert tried(timing_with(runner, "racing", GPU)) is None, "the round goes back"


@pytest.mark.parametrize("text", DEVICES)
@pytest.mark.parametrize(
    "fault", [sticky, lambda text: FaultyDevice("mallorn.time_slices", raises(RPCError(text)))]
)
def test_a_candidate_that_names_a_failed_gpu_has_failed_itself(
    text: str, fault: Callable[[str], FaultyDevice]
) -> None:
    """Its session lives on, or the device found no fault of the GPU when it ended."""
    with offering(fault(text)) as runner:
        trial = tried(timing_with(runner, "racing", GPU))
    assert trial is not None
    assert trial.outcome is Outcome.RUN_ERROR


def test_arguments_that_do_not_fit_into_memory_are_the_candidate_s_own_failure() -> None:
    text = RUNTIME.format("cudaErrorMemoryAllocation")
    with offering(FaultyDevice("mallorn.random_fill", Mock(side_effect=RPCError(text)))) as runner:
        trial = tried(timing_with(runner, "racing", GPU))
    assert trial is not None
    assert trial.outcome is Outcome.RUN_ERROR
    assert trial.error.startswith("the GPU has too little free memory for it")
