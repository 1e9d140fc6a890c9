"""What an error text of CUDA says: who is at fault, and in which words.

TVM raises three forms: `CUDA Runtime Error: cudaErrorX (n): words` (any call of the runtime, and errors of
kernels that ran before), `CUDALaunch Error: CUDA_ERROR_X` with the grid and perhaps the kernel's source, and
`cuModuleLoadData(...) failed with error: CUDA_ERROR_X`.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final


class Fault(StrEnum):
    """Whose fault an error of CUDA is."""

    CANDIDATE = "candidate"
    TIMEOUT = "timeout"  # the driver ended the candidate's kernel
    DEVICE = "device"  # the GPU or its driver


@dataclass(frozen=True, slots=True)
class CudaError:
    """An error of CUDA, in words that begin a message."""

    fault: Fault
    words: str


_OUT_OF_MEMORY: Final = CudaError(Fault.CANDIDATE, "the GPU has too little free memory for it")
_TOO_LARGE: Final = CudaError(
    Fault.CANDIDATE, "the GPU refuses the launch: too many threads, registers or bytes of shared memory"
)
_WRONG_CODE: Final = CudaError(Fault.CANDIDATE, "its code does not load on this GPU")
_BAD_ACCESS: Final = CudaError(Fault.CANDIDATE, "its kernel reads or writes where it must not")
_CRASHED: Final = CudaError(Fault.CANDIDATE, "its kernel crashed")
_TOO_SLOW: Final = CudaError(Fault.TIMEOUT, "the driver ended its kernel, which took too long")
_BROKEN: Final = CudaError(Fault.DEVICE, "the GPU or its driver failed")

# The driver's name of an error after CUDA_ERROR_, and the runtime's after cudaError.
_ERRORS: Final = (
    (("OUT_OF_MEMORY", "MemoryAllocation"), _OUT_OF_MEMORY),
    (("LAUNCH_OUT_OF_RESOURCES", "LaunchOutOfResources"), _TOO_LARGE),
    (("INVALID_VALUE", "InvalidConfiguration"), _TOO_LARGE),
    (("NO_BINARY_FOR_GPU", "NoKernelImageForDevice"), _WRONG_CODE),
    (("INVALID_IMAGE", "InvalidKernelImage"), _WRONG_CODE),
    (("INVALID_SOURCE", "InvalidSource"), _WRONG_CODE),
    (("INVALID_PTX", "InvalidPtx"), _WRONG_CODE),
    (("UNSUPPORTED_PTX_VERSION", "UnsupportedPtxVersion"), _WRONG_CODE),
    (("ILLEGAL_ADDRESS", "IllegalAddress"), _BAD_ACCESS),
    (("MISALIGNED_ADDRESS", "MisalignedAddress"), _BAD_ACCESS),
    (("INVALID_ADDRESS_SPACE", "InvalidAddressSpace"), _BAD_ACCESS),
    (("LAUNCH_FAILED", "LaunchFailure"), _CRASHED),
    (("ILLEGAL_INSTRUCTION", "IllegalInstruction"), _CRASHED),
    (("INVALID_PC", "InvalidPc"), _CRASHED),
    (("HARDWARE_STACK_ERROR", "HardwareStackError"), _CRASHED),
    (("ASSERT", "Assert"), _CRASHED),
    (("LAUNCH_TIMEOUT", "LaunchTimeout"), _TOO_SLOW),
    (("ECC_UNCORRECTABLE", "ECCUncorrectable"), _BROKEN),
    (("NVLINK_UNCORRECTABLE", "NvlinkUncorrectable"), _BROKEN),
    (("CONTAINED", "Contained"), _BROKEN),
    (("DEVICE_NOT_LICENSED", "DeviceNotLicensed"), _BROKEN),
    (("DEVICE_UNAVAILABLE", "DevicesUnavailable"), _BROKEN),
    (("NO_DEVICE", "NoDevice"), _BROKEN),
    (("NOT_INITIALIZED", "InitializationError"), _BROKEN),
    (("SYSTEM_NOT_READY", "SystemNotReady"), _BROKEN),
    (("SYSTEM_DRIVER_MISMATCH", "SystemDriverMismatch"), _BROKEN),
    (("EXTERNAL_DEVICE", "ExternalDevice"), _BROKEN),
    (("UNKNOWN", "Unknown"), _BROKEN),
)
_DRIVER, _RUNTIME = "CUDA_ERROR_", "cudaError"
_BY_NAME: Final = {
    prefix + name: error
    for names, error in _ERRORS
    for prefix, name in zip((_DRIVER, _RUNTIME), names, strict=True)
}
# TVM's words where the driver grants a kernel no more than 48 KiB, without an error's name.
_NO_SHARED_MEMORY: Final = "Failed to set the allowed dynamic shared memory size"
_SOURCE: Final = "\n// func_name="


def cuda_error(text: str) -> CudaError | None:
    """Return what a text of TVM's says of CUDA; None if it is not an error of CUDA that we know."""
    if _NO_SHARED_MEMORY in text:
        return _TOO_LARGE
    words = "".join(each if each.isalnum() or each == "_" else " " for each in without_source(text)).split()
    return next((_BY_NAME[word] for word in words if word in _BY_NAME), None)


def without_source(text: str) -> str:
    """Return an error text without the kernel's source, which TVM adds to errors of launches."""
    return text.partition(_SOURCE)[0]
