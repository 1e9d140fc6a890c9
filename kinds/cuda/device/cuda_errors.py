"""Explains the errors of CUDA that messages of TVM name.

Only the device says that its GPU is at fault: a candidate can name any error. TVM raises
`CUDA Runtime Error: cudaErrorX (n): text` (any call of the runtime, and errors of earlier
kernels), `CUDALaunch Error: CUDA_ERROR_X` with the grid and perhaps the kernel's source, and
`cuModuleLoadData(...) failed with error: CUDA_ERROR_X`.
"""

from typing import Final

from mallorn.workers.device.device_kind import KernelError

GPU_FAILED: Final = "the GPU or its driver failed"
TOO_SLOW: Final = "the driver ended its kernel, which took too long"
_TOO_LARGE: Final = "the GPU refuses the launch: too many threads, registers or bytes of shared memory"
# Names of the driver's errors (CUDA_ERROR_LAUNCH_FAILED) and the runtime's (cudaErrorAssert).
_NAMES: Final = {
    "the GPU has too little free memory for it": "outofmemory memoryallocation",
    _TOO_LARGE: "launchoutofresources invalidvalue invalidconfiguration",
    "its code does not load on this GPU": "nobinaryforgpu nokernelimagefordevice invalidimage "
    "invalidkernelimage invalidsource invalidptx unsupportedptxversion",
    "its kernel reads or writes where it must not": "illegaladdress misalignedaddress invalidaddressspace",
    "its kernel crashed": "launchfailed launchfailure illegalinstruction invalidpc hardwarestackerror assert",
    TOO_SLOW: "launchtimeout",
    GPU_FAILED: "eccuncorrectable nvlinkuncorrectable contained deviceunavailable devicesunavailable "
    "nodevice insufficientdriver notinitialized initializationerror systemnotready systemdrivermismatch "
    "externaldevice unknown",
}
_WORDS: Final = {name: words for words, names in _NAMES.items() for name in names.split()}
# TVM's message, without an error name, if the driver grants a kernel no more than 48 KiB.
_NO_SHARED_MEMORY: Final = "Failed to set the allowed dynamic shared memory size"


def explain_cuda_error(text: str) -> KernelError | None:
    """Explain the CUDA error that a TVM message names; return None if it names none."""
    words = _TOO_LARGE if _NO_SHARED_MEMORY in text else _words_of(text)
    if words is None:
        return None
    return KernelError(f"{words}: {remove_kernel_source(text)}", timed_out=words == TOO_SLOW)


def _words_of(text: str) -> str | None:
    names = "".join(c if c.isalnum() or c == "_" else " " for c in remove_kernel_source(text)).split()
    for name in names:
        short_name = name.removeprefix("CUDA_ERROR_").removeprefix("cudaError")
        if short_name != name and (words := _WORDS.get(short_name.replace("_", "").lower())):
            return words
    return None


def remove_kernel_source(text: str) -> str:
    """Remove the kernel's source from an error text; TVM appends it if a launch fails."""
    return text.partition("\n// func_name=")[0]
