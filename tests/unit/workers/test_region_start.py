"""What starting the threads of parallel loops takes is known, and left out of the times of small kernels."""

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tvm
from tvm import te

from mallorn.core.targets import parse_target
from workers.device.detect_host import detect_target
from workers.device.region_start import RegionStart, count_regions


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """One function of two parallel loops, and one of none."""
    x = te.placeholder((4, 64), name="x")
    first = te.compute(x.shape, lambda i, j: x[i, j] + 1.0, "first")
    second = te.compute(x.shape, lambda i, j: first[i, j] * 2.0, "second")
    function = te.create_prim_func([x, second])
    schedule = tvm.s_tir.Schedule(function)
    for name in ("first", "second"):
        schedule.parallel(schedule.get_loops(schedule.get_sblock(name))[0])
    module = tvm.IRModule(
        {
            "parallel": schedule.mod["main"].with_attr("global_symbol", "parallel"),
            "serial": function.with_attr("global_symbol", "serial"),
        }
    )
    target = tvm.target.Target(parse_target(detect_target().text).attrs | {"kind": "llvm"})
    file = tmp_path_factory.mktemp("regions") / "functions.so"
    tvm.compile(module, target=target).export_library(str(file))
    return tvm.runtime.load_module(str(file))


@pytest.mark.parametrize(("name", "count"), [("parallel", 2), ("serial", 0)])
def test_the_parallel_loops_of_a_run_are_counted(library: Any, name: str, count: int) -> None:
    values = np.ones((4, 64), "float32")
    given, result = tvm.runtime.tensor(values), tvm.runtime.tensor(0 * values)
    for _ in range(2):
        assert count_regions(lambda: library[name](given, result)) == count
        assert (result.numpy() == 4.0).all()


def test_without_a_library_there_is_nothing_to_count(tmp_path: Path) -> None:
    assert count_regions(lambda: None) == 0


def test_the_least_is_remembered_and_shared_with_forks() -> None:
    starts = RegionStart()
    assert starts.least_sec() == 0.0
    pid = os.fork()
    if pid == 0:
        starts.look()
        os._exit(0)
    os.waitpid(pid, 0)
    seen_sec = starts.least_sec()
    assert seen_sec > 0.0
    looks = [starts.look() for _ in range(20)]
    assert starts.least_sec() == min(seen_sec, *looks)


@pytest.mark.parametrize(("factor", "share"), [(1.0, 0.0), (1.2, 0.0), (1.3, 0.3), (2.0, 1.0)])
def test_less_than_a_quarter_of_the_least_is_noise(factor: float, share: float) -> None:
    starts = RegionStart()
    starts.look()
    least_sec = starts.least_sec()
    assert starts.excess(factor * least_sec) == pytest.approx(share * least_sec)
