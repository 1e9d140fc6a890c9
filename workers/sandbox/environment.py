"""Which variables of an environment a process that handles strangers' code may have."""

import os
import re
from collections.abc import Mapping
from typing import Final

_NAMES: Final = (
    *("PATH", "HOME", "LANG", "LANGUAGE", "TZ", "TMPDIR", "VIRTUAL_ENV", "LD_LIBRARY_PATH", "LD_PRELOAD"),
    *("CC", "CXX", "CPATH", "LIBRARY_PATH", "NO_COLOR", "COLUMNS", "MALLORN_CODE"),
)
#: Of compilers, drivers, numerical libraries, languages and Python itself.
_BEGINNINGS: Final = (
    *("LC_", "PYTHON", "TVM_", "OMP_", "KMP_", "GOMP_", "OPENBLAS_", "MKL_", "BLIS_", "NUMEXPR_", "ZIG_"),
    *("CUDA_", "NVIDIA_", "ROCM_", "ROCR_", "HIP_", "HSA_", "AMD_", "GPU_", "OCL_", "OPENCL_", "VK_"),
    *("MALLOC_", "GLIBC_", "ORT_", "COVERAGE_"),
)
# Vendors name their logins like their drivers' settings, as NVIDIA_API_KEY.
_SECRET: Final = re.compile(
    "KEY|TOKEN|SECRET|PASS|PWD|CREDENTIAL|LOGIN|AUTH|DSN|URL|URI|PROXY", re.IGNORECASE
)


def harmless(environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Return the variables that are on the allow-list: no key, no login, no address of a service."""
    return {
        name: value
        for name, value in environ.items()
        if name in _NAMES or (name.startswith(_BEGINNINGS) and not _SECRET.search(name))
    }
