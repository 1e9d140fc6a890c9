"""A GPU's probes do the work that they claim, in loops that no compiler removes."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tvm

from mallorn.kinds.cuda.compiler import cuda_probes
from mallorn.kinds.cuda.compiler.cuda_kernel_resources import compile_for_cuda
from mallorn.kinds.cuda.compiler.cuda_probes import MMAS, build_cuda_probes
from mallorn.workers.interfaces.hardware_probes import Finds
from mallorn.workers.tvm.programs.parsed_program_cache import parse_tvm_target
from tests.fixtures.cuda_emulator import run_kernel
from tests.unit.tvm_space.cuda_programs import ARCHS, target

OTHER_ARCHS = [pytest.param(arch, marks=pytest.mark.long) for arch in ARCHS[:-1]]
#: What the loop of each probe holds, by the beginning of its name.
IN_LOOP = {"float32": "fma.rn", "shared": "ld.shared.v4", "L2": "ld.global.nc.v4"}


def module_of(function: str, text: str) -> Any:
    return tvm.IRModule({function: tvm.script.from_source(text)})


def in_loops(ptx: str) -> str:
    """Return the text between each label and a later jump back to it."""
    loops = re.finditer(r"^(\$\w+):\n((?:(?!^\$).*\n)*?.*bra\s+\1;)", ptx, re.MULTILINE)
    return "\n".join(found[2] for found in loops)


@pytest.mark.slow
@pytest.mark.parametrize("arch", [*OTHER_ARCHS, ARCHS[-1]])
def test_the_loop_of_each_probe_is_compiled(arch: str) -> None:
    for probe, text in cuda_probes.cuda_probes(arch):
        if probe.finds in (Finds.MEMORY, Finds.FORK):
            continue
        built = compile_for_cuda(module_of(probe.function, text), parse_tvm_target(target(arch)))
        (kernel,), (code,) = built.kernels, built.codes
        wanted = IN_LOOP.get(probe.function, "mma.sync")
        least = cuda_probes.SUMS if probe.function == "float32" else cuda_probes.UNROLLED
        assert in_loops(code.ptx).count(wanted) >= least, probe.function
        assert kernel.spill_bytes == 0


def _without_fallbacks(source: str) -> str:
    """Leave out functions that TVM defines for CUDA versions without them, and the emulator has."""
    return re.sub(r"^CUDA_UNSUPPORTED_HALF_MATH_\w+\(.*\)$", "", source, flags=re.MULTILINE)


@pytest.fixture
def _is_brief(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cuda_probes, "BLOCKS", 2)
    monkeypatch.setattr(cuda_probes, "TURNS", dict.fromkeys(cuda_probes.TURNS, 3))
    monkeypatch.setattr(cuda_probes, "MEMORY_BYTES", 64 << 10)


@pytest.mark.usefixtures("_is_brief")
def test_each_probe_does_the_work_that_it_claims() -> None:
    """As counted by the emulator: products, and bytes of shared and of global memory."""
    counted = []
    for probe, text in cuda_probes.cuda_probes("sm_90a"):
        arrays = [np.full(shape, 3 if dtype == "int32" else 1, dtype) for _, dtype, shape in probe.args.args]
        report = run_kernel(module_of(probe.function, text), target("sm_90a"), arrays, _without_fallbacks)
        assert not report.faults, report
        if probe.function == "shared":
            cost = report.bank_conflicts["shared load"]
            assert (cost.actual * 128, cost.ratio) == (probe.work, 1.0)
        elif probe.finds in (Finds.BANDWIDTH, Finds.MEMORY):
            moved = 32 * sum(cost.actual for cost in report.global_sectors.values())
            assert moved == pytest.approx(probe.work, rel=0.05)
        elif probe.finds is Finds.PEAK and probe.function != "float32":
            (mma,) = (m for m in MMAS[probe.dtype] if probe.function.endswith(m.sums))
            assert report.instructions["mma"] * 2 * 16 * 8 * mma.depth == probe.work
        elif probe.finds is Finds.PEAK:
            assert (arrays[2] == cuda_probes.SUMS * (1 + 3)).all()  # three times x = x * 1 + 1
            assert probe.work == 2 * arrays[2].size * cuda_probes.SUMS * 3
        counted.append(probe.function)
    assert len(counted) == len(set(counted)) == 10


def test_a_gpu_without_a_type_on_tensor_cores_has_no_probe_of_it() -> None:
    assert not [probe for probe, _ in cuda_probes.cuda_probes("sm_75") if probe.dtype != "float32"]


@pytest.mark.slow
def test_libraries_of_probes_are_written_one_per_function(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = list(cuda_probes.cuda_probes("sm_90a"))[-2:]
    monkeypatch.setattr(cuda_probes, "cuda_probes", lambda _: first)
    probes = build_cuda_probes(target("sm_90a"), str(tmp_path))
    assert {file.name for file in tmp_path.iterdir()} == {probe.library for probe in probes}
