"""A library's own threads: right numbers however they are called, and nothing left behind."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import tvm
from tvm.script import tirx as T

from mallorn.graphc.export.build_library import export_library
from mallorn.workers.host.linker import find_c_compiler
from mallorn.workers.tvm.compile.compile_model import compile_object, host_linker
from mallorn.workers.tvm.network.run_recipe_passes import as_tvm_target

ROWS = 37
pytestmark = pytest.mark.skipif(find_c_compiler() is None, reason="needs a C compiler")
Run = Callable[..., Any]

# Runs each script that it is told in a fork, as to load TVM takes longer than any of them.
FORKING = """
import json, os, sys
import numpy, tvm, tvm_ffi
for line in sys.stdin:
    library, script, environment = json.loads(line)
    if (child := os.fork()) == 0:
        sys.argv[1:] = [library]
        os.environ.update(environment)
        exec(script, {})
        sys.exit()
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""
# What each script begins with; `check` computes and compares.
HEAD = f"""
ROWS = {ROWS}
import gc, json, os, sys, threading
import numpy as np, tvm, tvm_ffi

def load():
    return tvm.runtime.load_module(sys.argv[1])

def check(main, seed=0):
    x = np.random.default_rng(seed).random((ROWS, 64), "float32")
    y = tvm.runtime.tensor(np.zeros_like(x))
    main(tvm.runtime.tensor(x), y)
    return bool(np.array_equal(y.numpy(), x + x))

def states():
    return dict(map(state, os.listdir("/proc/self/task")))

def state(task):
    return int(task), open("/proc/self/task/%s/stat" % task).read().rpartition(")")[2].split()[0]
"""


@T.prim_func(private=False, s_tir=True)
def doubled(x: T.Buffer((ROWS, 64), "float32"), y: T.Buffer((ROWS, 64), "float32")):
    T.func_attr({"global_symbol": "main"})
    for i in T.parallel(ROWS):
        for j in T.serial(64):
            with T.sblock("y"):
                row, column = T.axis.remap("SS", [i, j])
                y[row, column] = x[row, column] + x[row, column]


@T.prim_func(private=False, s_tir=True)
def failing(x: T.Buffer((ROWS, 64), "float32"), y: T.Buffer((ROWS, 64), "float32")):
    T.func_attr({"global_symbol": "main"})
    for i in T.parallel(ROWS):
        T.evaluate(T.call_packed("mallorn.test.fails", i))


def exported(function: Any, folder: Path) -> str:
    target = as_tvm_target(json.dumps({"kind": "llvm", "num-cores": 3}))
    library = str(folder / f"{function.attrs['global_symbol']}-{id(function)}.so")
    executable = tvm.compile(tvm.IRModule({"main": function}), target)
    export_library(executable, library, target, {}, host_linker(target))
    return library


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> str:
    return exported(doubled, tmp_path_factory.mktemp("pool"))


@pytest.fixture(scope="module")
def forking() -> Iterator["subprocess.Popen[str]"]:
    """A process that has loaded TVM, and has no threads yet."""
    kept = {name: value for name, value in os.environ.items() if not name.endswith("_NUM_THREADS")}
    pipe = subprocess.PIPE
    command = [sys.executable, "-c", FORKING]
    with subprocess.Popen(command, env=kept, stdin=pipe, stdout=pipe, text=True) as process:
        yield process
        process.stdin.close()  # type: ignore[union-attr]


@pytest.fixture
def run(forking: "subprocess.Popen[str]") -> Run:
    """What a script prints as JSON, with this library and these variables."""

    def one(library: str, script: str, **environment: str) -> Any:
        assert forking.stdin is not None
        assert forking.stdout is not None
        print(json.dumps([library, HEAD + script, environment]), file=forking.stdin, flush=True)
        said, code = forking.stdout.readline(), forking.stdout.readline()
        assert code == "0\n", said
        return json.loads(said)

    return one


@pytest.mark.parametrize("threads", ["1", "2", "5", "64"])
def test_every_row_is_computed_once_by_any_number_of_threads(threads: str, library: str, run: Run) -> None:
    script = "main = load()['main']\nprint(json.dumps([check(main, seed) for seed in range(50)]))"
    assert all(run(library, script, TVM_NUM_THREADS=threads))


def test_several_callers_may_run_it_at_once(library: str, run: Run) -> None:
    script = """
main, good = load()["main"], []
def call(number):
    good.extend(check(main, number * 100 + turn) for turn in range(100))
callers = [threading.Thread(target=call, args=(number,)) for number in range(12)]
[caller.start() for caller in callers]
[caller.join() for caller in callers]
print(json.dumps([len(good), all(good)]))
"""
    assert run(library, script, TVM_NUM_THREADS="3") == [1200, True]


def test_a_forked_process_has_threads_of_its_own_and_ends(library: str, run: Run) -> None:
    script = """
main = load()["main"]
check(main)
child = os.fork()
if child == 0:
    sys.exit(0 if check(main) and check(main, 1) and len(states()) == 3 else 1)
print(json.dumps([os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), check(main)]))
"""
    assert run(library, script, TVM_NUM_THREADS="3") == [0, True]


def test_unloading_takes_the_threads_away(library: str, run: Run) -> None:
    script = """
found = [len(states())]
for _ in range(20):
    module = tvm_ffi.load_module(sys.argv[1], keep_module_alive=False)
    assert check(module["main"])
    found.append(len(states()))
    del module
    gc.collect()
print(json.dumps([found[0], found[-1], len(states())]))
"""
    before, during, after = run(library, script, TVM_NUM_THREADS="4")
    assert (during, after) == (before + 3, before)


def test_threads_are_not_bound_to_cores_and_sleep_when_there_is_nothing_to_do(library: str, run: Run) -> None:
    script = """
main, before = load()["main"], states()
check(main)
ours = [task for task in states() if task not in before]
while any(states()[task] != "S" for task in ours):
    pass
print(json.dumps([len(ours), all(os.sched_getaffinity(t) == os.sched_getaffinity(0) for t in ours)]))
"""
    assert run(library, script, TVM_NUM_THREADS="3") == [2, True]


def test_without_a_word_it_takes_the_target_s_cores_where_there_are_as_many(library: str, run: Run) -> None:
    script = "main, before = load()['main'], len(states())\ncheck(main)\nprint(len(states()) - before)"
    assert run(library, script) == min(3, len(os.sched_getaffinity(0))) - 1


def test_an_error_in_a_part_reaches_the_caller(tmp_path: Path, run: Run) -> None:
    script = """
def fails(part):
    if part == 30:
        raise ValueError("row 30 is bad")
tvm.register_global_func("mallorn.test.fails", fails)
main = load()["main"]
try:
    check(main)
except ValueError as error:
    print(json.dumps(str(error)))
"""
    assert "row 30 is bad" in run(exported(failing, tmp_path), script, TVM_NUM_THREADS="3")


def test_threads_and_their_cores_are_changed_while_callers_run(library: str, run: Run) -> None:
    script = """
import ctypes
main, wrong, is_over = load()["main"], [], threading.Event()
change = ctypes.CDLL(sys.argv[1]).mallorn_set_threads
def call(number):
    turn = 0
    while not is_over.is_set():
        turn += 1
        if not check(main, number * 1000 + turn):
            wrong.append(turn)
callers = [threading.Thread(target=call, args=(number,)) for number in range(3)]
[caller.start() for caller in callers]
for count in [1, 5, 2, 9, 0, 4] * 5:
    assert change(count, None, 0) == 0
    check(main)
is_over.set()
[caller.join() for caller in callers]
core = min(os.sched_getaffinity(0))
mask = bytearray(1024)
mask[core // 8] = 1 << core % 8
assert change(6, bytes(mask), ctypes.c_size_t(1024)) == 0
before = set(states())
check(main)
ours = set(states()) - before
while any(os.sched_getaffinity(task) != {core} for task in ours):
    pass
print(json.dumps([wrong, len(ours), change(257, None, 0), change(-1, None, 0)]))
"""
    assert run(library, script, TVM_NUM_THREADS="3") == [[], 5, -1, -1]


def test_without_a_compiler_tvm_s_threads_serve(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    compile_object.cache_clear()
    monkeypatch.setattr("mallorn.workers.tvm.compile.compile_model.find_c_compiler", lambda: None)
    made = exported(doubled, tmp_path)
    compile_object.cache_clear()
    assert "apt-get install gcc" in caplog.text
    script = "main = load()['main']\nprint(json.dumps(check(main)))"
    assert run(made, script, TVM_NUM_THREADS="3")
