"""onnxruntime's provider out of the wheel, without TVM: networks, many callers, C++, sanitizers, tutorial."""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from importlib.metadata import distribution
from pathlib import Path
from typing import Any, Final

import numpy as np
import onnx
import onnxruntime
import pytest

from mallorn.graphc.export import compile_network
from tests.acceptance.test_runtime import CPP, DECODER_SIZES, RANGE_SIZES, assert_as_onnxruntime, libraries
from tests.fixtures.command_line import ROOT
from tests.fixtures.regions import compile_provider
from tests.fixtures.runtime_wheel import run_python
from tests.fixtures.tutorials import blocks
from tests.fixtures.wheel import copy_distribution

_ = libraries  # the fixture
OTHER_VERSIONS: Final = ("1.23.2", "1.24.4", "1.32.0")
# The two innermost frames of an access in a report. Others are in onnxruntime and TVM, which are built
# without the sanitizer, so that it cannot see what orders them.
ACCESS: Final = re.compile(r"#[01] .*(?:runtime/src|mallorn_runtime\.h).*")
PREPARE: Final = """
import gc, json, os, sys, threading
sys.path.append(sys.argv.pop())
import numpy as np, onnxruntime
import mallorn_runtime.onnxruntime as mallorn
def start():
    return onnxruntime.InferenceSession(sys.argv[1], mallorn.session_options(sys.argv[2]))
"""
RUN: Final = (
    PREPARE
    + """
with np.load(sys.argv[3]) as inputs:
    session = start()
    outputs = session.run(None, dict(inputs))
    assert [np.array_equal(*pair) for pair in zip(outputs, session.run(None, dict(inputs)))]
np.savez(sys.argv[4], **{info.name: array for info, array in zip(session.get_outputs(), outputs)})
from importlib.util import find_spec
assert not find_spec("tvm")
"""
)


@pytest.fixture(scope="session")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with onnxruntime and nothing else."""
    folder = tmp_path_factory.mktemp("onnxruntime")
    copy_distribution(distribution("onnxruntime"), folder)
    return folder


@pytest.fixture
def tuned(libraries: Any, tmp_path: Path) -> Callable[[str], tuple[Any, Path]]:
    """An example by name, and a folder with its library."""

    def get(name: str) -> tuple[Any, Path]:
        example, library = libraries(name)
        return example, library.parent

    return get


def inputs_of(name: str, example: Any) -> Iterator[dict[str, Any]]:
    if name == "range":
        for sizes in RANGE_SIZES:
            yield {"x": np.random.default_rng(0).standard_normal((*sizes, 16)).astype("float32")}
    elif name == "decoder":
        for rows, past in DECODER_SIZES:
            yield example.inputs(rows, past)
    else:
        yield compile_network.random_inputs(onnx.load(example.path), {}, example.graph.input_ranges)


@pytest.mark.parametrize("name", ["mlp", "bert-small", "picture-int8", "range", "decoder"])
def test_a_network_computes_what_onnxruntime_does_alone(
    name: str, tuned: Any, runtime_python: Path, packages: Path, tmp_path: Path, capfd: Any
) -> None:
    example, folder = tuned(name)
    for inputs in inputs_of(name, example):
        np.savez(tmp_path / "inputs.npz", **inputs)
        words = [example.path, folder, tmp_path / "inputs.npz", tmp_path / "outputs.npz", packages]
        capfd.readouterr()
        run_python(runtime_python, RUN, *map(str, words))
        assert "Mallorn" not in capfd.readouterr().err, "all of it runs in the library"
        assert_as_onnxruntime(example, tmp_path / "outputs.npz", inputs)


def test_ten_thousand_calls_and_many_sessions_take_no_more_memory_and_threads(
    tuned: Any, runtime_python: Path, packages: Path
) -> None:
    script = (
        PREPARE
        + """
def figures():
    gc.collect()
    return int(open("/proc/self/statm").read().split()[1]) * 4096, len(os.listdir("/proc/self/task"))
def call(session, count):
    for turn in range(count):
        (info,) = session.get_inputs()
        shape = [size if isinstance(size, int) else turn % 4 + 2 for size in info.shape]
        session.run(None, {info.name: np.ones(shape, "float32")})
def growth(work):
    work()
    before = figures()
    work()
    return [after - former for after, former in zip(figures(), before)]
def least_growth(work):  # what leaks grows each time, and the allocator's memory does not
    return [min(each) for each in zip(*(growth(work) for _ in range(3)))]
session = start()
works = {"calls": lambda: call(session, 10000), "sessions": lambda: [call(start(), 2) for _ in range(20)]}
print(json.dumps(least_growth(works[sys.argv[3]])))
"""
    )
    for name, work in (("range", "calls"), ("mlp", "sessions")):
        example, folder = tuned(name)
        printed = run_python(runtime_python, script, example.path, str(folder), work, str(packages))
        grown_bytes, more_threads = json.loads(printed)
        assert grown_bytes < 2 << 20, "the weights of one session are two megabytes"
        assert more_threads == 0


MANY_CALLERS: Final = (
    PREPARE
    + """
if len(sys.argv) > 3:
    from pathlib import Path
    mallorn.LIBRARY = Path(sys.argv[3])
sessions, wrong = [start() for _ in range(3)], []
(info,) = sessions[0].get_inputs()
shape = [size if isinstance(size, int) else 3 for size in info.shape]
inputs = [np.random.default_rng(seed).random(shape, "float32") for seed in range(10)]
expected = [sessions[0].run(None, {info.name: x})[0] for x in inputs]
def call(number):
    for turn in range(20):
        session = start() if turn == 10 else sessions[turn % 3]
        (found,) = session.run(None, {info.name: inputs[number]})
        if not np.array_equal(found, expected[number]):
            wrong.append(number)
threads = [threading.Thread(target=call, args=(number,)) for number in range(10)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
print(json.dumps(wrong))
"""
)


def test_ten_threads_call_several_sessions_at_once(tuned: Any, runtime_python: Path, packages: Path) -> None:
    example, folder = tuned("mlp")
    assert run_python(runtime_python, MANY_CALLERS, example.path, str(folder), str(packages)) == "[]\n"


def test_the_tutorial_is_typed_where_only_the_runtime_and_onnxruntime_are(
    tuned: Any, runtime_python: Path, packages: Path, tmp_path: Path
) -> None:
    example, folder = tuned("mlp")
    (tmp_path / "tuned").mkdir()
    shutil.copy(folder / "model.so", tmp_path / "tuned")
    shutil.copy(example.path, tmp_path / "mlp.onnx")
    page = (ROOT / "docs" / "tutorials" / "onnxruntime.md").read_text()
    typed = "".join(block.code for block in blocks(page) if "clean" in block.told)
    start = f"import os, sys; os.chdir({str(tmp_path)!r}); sys.path.append({str(packages)!r})\n"
    assert run_python(runtime_python, start + typed) == "MallornExecutionProvider (64, 10)\n"


@pytest.mark.long
@pytest.mark.parametrize(
    ("checks", "preloaded"), [("address,undefined", "libasan.so"), ("thread", "libtsan.so")]
)
def test_ten_threads_call_at_once_under_sanitizers(
    checks: str, preloaded: str, tuned: Any, packages: Path, tmp_path: Path
) -> None:
    options = ["-g", "-O1", f"-fsanitize={checks}", "-fno-sanitize-recover=undefined"]
    compile_provider(tmp_path / "checked.so", *options)
    path = subprocess.run([str(CPP), f"-print-file-name={preloaded}"], capture_output=True, text=True).stdout
    env = {
        "LD_PRELOAD": path.strip(),
        "ASAN_OPTIONS": "detect_leaks=0",
        "TSAN_OPTIONS": "exitcode=0",
        "PYTHONPATH": str(ROOT / "runtime"),
    }
    for name in ("mlp", "range"):
        example, folder = tuned(name)
        script = [MANY_CALLERS, example.path, str(folder), str(tmp_path / "checked.so"), str(packages)]
        command = ["setarch", "-R", sys.executable, "-P", "-c", *script]
        done = subprocess.run(command, env=os.environ | env, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr[-4000:]
        assert done.stdout == "[]\n"
        assert not ACCESS.search(done.stderr), done.stderr[-4000:]


@pytest.mark.long
@pytest.mark.parametrize("version", OTHER_VERSIONS)
def test_the_provider_works_in_other_versions_of_onnxruntime(version: str, tmp_path: Path) -> None:
    """The tests of the provider call every function of onnxruntime that it uses, by its place in a table."""
    install = [
        sys.executable,
        "-P",
        "-m",
        "pip",
        "install",
        "--quiet",
        "--no-deps",
        "--target",
        str(tmp_path),
    ]
    subprocess.run([*install, f"onnxruntime=={version}"], check=True)
    env = os.environ | {"PYTHONPATH": os.pathsep.join([str(tmp_path), str(ROOT)])}
    found = [sys.executable, "-P", "-c", "import onnxruntime; print(onnxruntime.__version__)"]
    assert subprocess.run(found, env=env, capture_output=True, text=True).stdout == f"{version}\n"
    test = ROOT / "tests" / "unit" / "runtime" / "test_onnxruntime.py"
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", str(test)], cwd=ROOT, env=env, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout[-4000:]


PROGRAM: Final = """
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>
#include "onnxruntime_interface.h"
extern "C" const ort::ApiBase* OrtGetApiBase();
template <typename F> F* at(const void* const* table, int place) {
  return reinterpret_cast<F*>(const_cast<void*>(table[place]));
}
int main(int, char** argv) {
  using ort::Status;
  const void* const* table = OrtGetApiBase()->GetApi(ort::kVersion);
  const ort::Api api{table};
  auto check = [&](Status* status) {
    if (status != nullptr) std::puts(api.GetErrorMessage(status)), std::exit(1);
  };
  ort::Env* env;
  ort::SessionOptions* options;
  ort::Session* session;
  check(api.CreateEnv(ort::kWarning, "program", &env));
  check(at<Status*(ort::Env*, const char*, const char*)>(table, 301)(env, "mallorn", argv[1]));
  const ort::EpDevice* const* devices;
  size_t count;
  check(at<Status*(ort::Env*, const ort::EpDevice* const**, size_t*)>(table, 303)(env, &devices, &count));
  std::vector<const ort::EpDevice*> ours;
  for (size_t i = 0; i < count; ++i) {
    const char* name = at<const char*(const ort::EpDevice*)>(table, 312)(devices[i]);
    if (std::strcmp(name, "MallornExecutionProvider") == 0) ours.push_back(devices[i]);
  }
  const char *keys[] = {"directory"}, *values[] = {argv[3]};
  check(api.CreateSessionOptions(&options));
  check(at<Status*(ort::SessionOptions*, ort::Env*, const ort::EpDevice* const*, size_t, const char* const*,
                   const char* const*, size_t)>(table, 304)(options, env, ours.data(), 1, keys, values, 1));
  check(api.CreateSession(env, argv[2], options, &session));
  void* memory;
  check(at<Status*(const char*, int, int, int, void**)>(table, 68)("Cpu", 1, 0, 0, &memory));
  std::vector<float> ones(64 * 784, 1.0f);
  int64_t sizes[] = {64, 784};
  ort::Value *x, *y = nullptr;
  check(at<Status*(void*, void*, size_t, const int64_t*, size_t, int, ort::Value**)>(table, 49)(
      memory, ones.data(), ones.size() * 4, sizes, 2, 1, &x));
  const char *in[] = {argv[4]}, *out[] = {argv[5]};
  check(api.Run(session, nullptr, in, &x, 1, out, 1, &y));
  void* data;
  check(api.GetTensorMutableData(y, &data));
  for (int i = 0; i < 4; ++i) std::printf("%.6g ", static_cast<float*>(data)[i]);
  api.ReleaseValue(x), api.ReleaseValue(y), api.ReleaseSession(session), api.ReleaseSessionOptions(options);
  api.ReleaseEnv(env);
}
"""


@pytest.mark.skipif(CPP is None, reason="needs a C++ compiler")
def test_a_program_in_cpp_uses_the_provider_of_the_wheel(
    tuned: Any, runtime_python: Path, packages: Path, tmp_path: Path
) -> None:
    example, folder = tuned("mlp")
    script = "import mallorn_runtime as m; print(m.cmake_folder().parent / 'lib/libmallorn_onnxruntime.so')"
    provider = run_python(runtime_python, script).strip()
    cmake = Path(provider).parents[1] / "cmake" / "mallorn_runtime-config.cmake"
    assert "lib/libmallorn_onnxruntime.so" in cmake.read_text()
    (tmp_path / "program.cc").write_text(PROGRAM)
    (shared,) = (packages / "onnxruntime" / "capi").glob("libonnxruntime.so.*")
    (tmp_path / "libonnxruntime.so.1").symlink_to(shared)
    includes = [f"-I{ROOT / 'runtime' / 'src'}", f"-Wl,-rpath,{tmp_path}"]
    command = [str(CPP), "-std=c++17", str(tmp_path / "program.cc"), str(shared), *includes]
    subprocess.run([*command, "-o", str(tmp_path / "program")], check=True)
    alone = onnxruntime.InferenceSession(example.path)
    names = [each[0].name for each in (alone.get_inputs(), alone.get_outputs())]
    words = [tmp_path / "program", provider, example.path, folder, *names]
    done = subprocess.run([*map(str, words)], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Mallorn" not in done.stderr
    expected = alone.run(None, {names[0]: np.ones((64, 784), "float32")})[0].ravel()[:4]
    np.testing.assert_allclose([float(word) for word in done.stdout.split()], expected, rtol=1e-3)
