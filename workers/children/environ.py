"""Which variables of the environment a helper process is given: none that could hold a secret."""

import os
from collections.abc import Mapping
from typing import Final

_NAMES: Final = (
    *("PATH", "HOME", "LANG", "LANGUAGE", "TZ", "TMPDIR", "VIRTUAL_ENV", "LD_LIBRARY_PATH", "LD_PRELOAD"),
    *("CC", "CXX", "CPATH", "LIBRARY_PATH", "NO_COLOR", "COLUMNS"),
)
#: Of compilers, drivers, numerical libraries, languages and Python itself.
_BEGINNINGS: Final = (
    *("LC_", "PYTHON", "TVM_", "OMP_", "KMP_", "GOMP_", "OPENBLAS_", "MKL_", "BLIS_", "NUMEXPR_", "ZIG_"),
    *("CUDA_", "NVIDIA_", "ROCM_", "ROCR_", "HIP_", "HSA_", "AMD_", "GPU_", "OCL_", "OPENCL_", "VK_"),
    *("MALLOC_", "GLIBC_", "ORT_", "COVERAGE_"),
)


def harmless(environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """What of an environment may be passed on."""
    return {name: value for name, value in environ.items() if name in _NAMES or name.startswith(_BEGINNINGS)}
