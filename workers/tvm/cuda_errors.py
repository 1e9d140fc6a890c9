"""Meanings of CUDA's error texts, in words that say whose fault an error is.

TVM raises three forms: `CUDA Runtime Error: cudaErrorX (n): words` (any call of the runtime, and errors of
kernels that ran before), `CUDALaunch Error: CUDA_ERROR_X` with the grid and perhaps the kernel's source, and
`cuModuleLoadData(...) failed with error: CUDA_ERROR_X`.
"""

from typing import Final

#: The candidate is innocent.
GPU_FAILED: Final = "the GPU or its driver failed"
TOO_SLOW: Final = "the driver ended its kernel, which took too long"
_TOO_LARGE: Final = "the GPU refuses the launch: too many threads, registers or bytes of shared memory"
# By the names of the driver (CUDA_ERROR_LAUNCH_FAILED) and of the runtime (cudaErrorLaunchFailure).
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
# TVM's words where the driver grants a kernel no more than 48 KiB, without an error's name.
_NO_SHARED_MEMORY: Final = "Failed to set the allowed dynamic shared memory size"


def meaning(text: str) -> str | None:
    """Return what a text of TVM's means; None if it names no error of CUDA that is known here."""
    if _NO_SHARED_MEMORY in text:
        return _TOO_LARGE
    names = "".join(each if each.isalnum() or each == "_" else " " for each in without_source(text)).split()
    for name in names:
        bare = name.removeprefix("CUDA_ERROR_").removeprefix("cudaError")
        if bare != name and (words := _WORDS.get(bare.replace("_", "").lower())):
            return words
    return None


def without_source(text: str) -> str:
    """Return an error text without the kernel's source, which TVM adds to errors of launches."""
    return text.partition("\n// func_name=")[0]
