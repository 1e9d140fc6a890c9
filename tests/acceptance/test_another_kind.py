"""A kind of hardware in a package of its own: RISC-V, compiled for here and run by an emulator."""

import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Final

import numpy as np
import pytest
from tvm_ffi.libinfo import find_include_path

from tests.fixtures.command_line import ROOT, clean_environment, path_with_mallorn
from tests.fixtures.debian import unpacked
from tests.fixtures.tutorials import blocks

EXAMPLE: Final = ROOT / "examples" / "riscv64"
MOST_LINES: Final = 150
PAGE: Final = ROOT / "docs" / "kinds.md"
#: As a reader installs it, but into a folder, and without what this Python has.
PIP: Final = "python -m pip install --quiet --no-build-isolation --no-deps --target {site} "
SIZES: Final = (32, 48, 64)
#: Prints the kinds that targets find, and the call that built a candidate.
BUILD: Final = """
import sys
from pathlib import Path
from mallorn.core.registry import list_kinds
from mallorn.core.targets import parse_target
from mallorn.workers.interfaces.candidate_compiler import CandidateCompiler
from mallorn.workers.interfaces.tensor_arguments import Arguments
from mallorn.workers.measure.measurer_interface import Program
from mallorn.workers.measure.tvm_space import TvmSpace
from tests.unit.tvm_space.programs import matmul

folder = Path(sys.argv[1])
target = parse_target(next(kind.example for kind in list_kinds() if kind.name == "riscv64"))
with CandidateCompiler(room=folder) as compiler:
    sketches = compiler.design_space(matmul(), target.text)
    space = TvmSpace(sketches, Program("", matmul(), Arguments(()), 1.0), target, (), compiler)
    first = space.defaults()[0]
    trace = next(sketch.trace for sketch in sketches if sketch.key == first.sketch)
    compiler.build(matmul(), target.text, trace, first.decisions, str(folder / "kernel.so"))
print(target.hardware.name)
"""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder into which pip installed the package, as its user would."""
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-build-isolation", "--no-deps"]
    copy = tmp_path_factory.mktemp("source") / EXAMPLE.name
    subprocess.run(["cp", "-r", str(EXAMPLE), str(copy)], check=True)
    subprocess.run([*command, "--target", str(folder), str(copy)], check=True)
    return folder


def test_a_kind_of_hardware_is_a_few_lines() -> None:
    files = [file for file in EXAMPLE.rglob("*") if file.suffix in (".py", ".toml")]
    assert sum(len(file.read_text().splitlines()) for file in files) < MOST_LINES


def test_an_installed_kind_builds_candidates_that_compute_the_same_there(site: Path, tmp_path: Path) -> None:
    if find_spec("ziglang") is None:
        pytest.fail("the linker for another CPU is not here: make cross")
    environment = clean_environment(PYTHONPATH=f"{site}:{ROOT}")
    built = subprocess.run(
        [sys.executable, "-c", BUILD, str(tmp_path)],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert built.returncode == 0, built.stderr
    assert built.stdout.split() == ["riscv64"]
    rows, terms, columns = SIZES
    rng = np.random.default_rng(0)
    left, right, bias = (
        rng.standard_normal(s, "float32") for s in ((rows, terms), (terms, columns), columns)
    )
    np.concatenate([left.ravel(), right.ravel(), bias]).tofile(tmp_path / "in.bin")
    run_kernel(tmp_path)
    computed = np.fromfile(tmp_path / "out.bin", "float32").reshape(rows, columns)
    np.testing.assert_allclose(computed, np.maximum(left @ right + bias, 0), rtol=1e-4, atol=1e-4)


def test_what_the_page_on_kinds_types_works(tmp_path: Path) -> None:
    (tmp_path / "examples").mkdir()
    subprocess.run(["cp", "-r", str(EXAMPLE), str(tmp_path / "examples")], check=True)
    site, path = tmp_path / "site", path_with_mallorn(tmp_path / "bin")
    typed = "\n".join(block.code for block in blocks(PAGE.read_text()) if block.language == "sh")
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", typed.replace("pip install ziglang ", PIP.format(site=site))],
        env=clean_environment(PYTHONPATH=f"{site}:{ROOT}", PATH=path, MALLORN_DATA_DIR=str(tmp_path)),
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "a kernel was built; a device for riscv64 can run it" in done.stdout
    assert re.search(r"\d+ passed", done.stdout)


def run_kernel(folder: Path) -> None:
    system = unpacked("libc6-riscv64-cross") / "usr" / "riscv64-linux-gnu"
    emulator = unpacked("qemu-user-static") / "usr" / "bin" / "qemu-riscv64-static"
    headers = find_include_path()
    source = ROOT / "tests" / "fixtures" / "call_kernel.c"
    zig = [sys.executable, "-m", "ziglang", "cc", "-target", "riscv64-linux-gnu.2.34", f"-I{headers}"]
    subprocess.run([*zig, "-o", str(folder / "call"), str(source)], check=True)
    files = (folder / name for name in ("kernel.so", "in.bin", "out.bin"))
    command = [emulator, "-L", system, folder / "call", *files, *SIZES]
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
