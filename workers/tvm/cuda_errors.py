"""Meanings of CUDA's error texts, which tell whether the candidate or the GPU is at fault.

TVM raises three forms: `CUDA Runtime Error: cudaErrorX (n): text` (any call of the runtime,
and errors of earlier kernels), `CUDALaunch Error: CUDA_ERROR_X` with the grid and perhaps the
kernel's source, and `cuModuleLoadData(...) failed with error: CUDA_ERROR_X`.
"""

from typing import Final

#: Not the candidate's fault.
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


def meaning(text: str) -> str | None:
    """Return the meaning of a TVM error text; None if it names no known CUDA error."""
    if _NO_SHARED_MEMORY in text:
        return _TOO_LARGE
    names = "".join(each if each.isalnum() or each == "_" else " " for each in without_source(text)).split()
    for name in names:
        short_name = name.removeprefix("CUDA_ERROR_").removeprefix("cudaError")
        if short_name != name and (words := _WORDS.get(short_name.replace("_", "").lower())):
            return words
    return None


def without_source(text: str) -> str:
    """Return an error text without the kernel's source, which TVM adds to errors of launches."""
    return text.partition("\n// func_name=")[0]
