"""mallorn-runtime alone, without TVM's compiler: networks of the repository, in Python and C++."""

import json
import os
import random
import shutil
import subprocess
from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import Any, Final

import numpy as np
import onnx
import onnxruntime
import pytest
import tvm_ffi
from onnx import TensorProto, helper

from benchmarks.networks.quantised import QUANTISED
from mallorn.core.values.manifest import Manifest
from mallorn.graphc.export import compile_network
from mallorn.graphc.export.compare_with_onnxruntime import errors_against_onnxruntime
from mallorn.graphc.export.export_checks import LARGEST_ERROR, largest_allowed_error
from mallorn.workers.tvm.compile.compile_model import compile_model
from mallorn.workers.tvm.network import extract_tasks_of_range as choose_sizes
from tests.fixtures.command_line import ROOT
from tests.fixtures.elf_files import METADATA, elf_bytes
from tests.fixtures.onnx_network import onnx_network
from tests.fixtures.runtime_wheel import run_python
from tests.integration.tvm_graph.conftest import Example
from tests.integration.tvm_graph.in_range import InRange
from tests.integration.tvm_graph.test_growing import BOUNDS, Decoder
from tests.integration.tvm_graph.test_ranged import Ranged

FIXED: Final = ("mlp", "bert-small", "resnet18", "picture-int8", "detector")
RANGE_SIZES: Final = ((1, 2), (3, 7), (5, 9))
DECODER_SIZES: Final = ((1, 0), (1, 17), (12, 40))  # tokens, and tokens before them
RUN_ONCE: Final = """
import sys, numpy as np
from mallorn_runtime import Session
session = Session(sys.argv[1])
with np.load(sys.argv[2]) as inputs:
    np.savez(sys.argv[3], **session.run(dict(inputs)))
"""
CPP: Final = shutil.which("g++") or shutil.which("clang++")
CPP_LINES: Final = 80


class Quantised(Example):
    """A network whose weights and activations are bytes."""

    @cached_property
    def path(self) -> str:
        path = self.folder / f"{self.name}.onnx"
        onnx.save(QUANTISED[self.name](0), path)
        return str(path)


class Detector(Example):
    """A network that ends in the best of many scores, which TVM sorts by a function of its full wheel."""

    @cached_property
    def path(self) -> str:
        weights = np.random.default_rng(0).standard_normal((8, 3, 3, 3)).astype("float32")
        nodes = [
            helper.make_node("Conv", ["image", "w"], ["scores"], kernel_shape=[3, 3]),
            helper.make_node("Reshape", ["scores", "flat"], ["row"]),
            helper.make_node("TopK", ["row", "k"], ["best", "places"]),
        ]
        constants = {"w": weights, "flat": np.array([1, -1]), "k": np.array([300])}
        network = onnx_network(nodes, {"image": (1, 3, 40, 40)}, {"best": (1, 300)}, **constants)
        network.graph.output.append(helper.make_tensor_value_info("places", TensorProto.INT64, [1, 300]))
        onnx.save(network, path := self.folder / "detector.onnx")
        return str(path)


def compile_example(example: Example, dynamic: Any = None) -> Path:
    library = example.folder / "model.so"
    manifest = Manifest(job="1234", target={}, recipe=example.recipe, input_ranges=example.graph.input_ranges)
    compile_model(example.path, None, example.target, example.recipe, str(library), {}, dynamic, manifest)
    return library


@pytest.fixture(scope="module")
def libraries(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], tuple[Example, Path]]:
    """An example by name, and its library; compiled once, without schedules."""
    classes = {"range": Ranged, "decoder": Decoder, "picture-int8": Quantised, "detector": Detector}
    compiled: dict[str, tuple[Example, Path]] = {}

    def get(name: str) -> tuple[Example, Path]:
        if name not in compiled:
            example = classes.get(name, Example)(name, "tuned", tmp_path_factory.mktemp(name))
            with pytest.MonkeyPatch.context() as patch:
                if name == "decoder":
                    patch.setattr(choose_sizes, "MOST_POINTS", 3)
                library = compile_example(example, example.dynamic if isinstance(example, InRange) else None)
            compiled[name] = example, library
        return compiled[name]

    return get


def assert_as_onnxruntime(example: Example, outputs: Path, inputs: dict[str, Any]) -> None:
    with np.load(outputs) as arrays:
        ours = list(arrays.values())
    error, own_error = errors_against_onnxruntime(example.path, inputs, ours)
    assert error <= max(LARGEST_ERROR, largest_allowed_error(Path(example.path), own_error))


def run_once(python: Path, library: Path, inputs: dict[str, Any], folder: Path) -> Path:
    np.savez(folder / "inputs.npz", **inputs)
    run_python(python, RUN_ONCE, str(library), str(folder / "inputs.npz"), str(folder / "outputs.npz"))
    return folder / "outputs.npz"


@pytest.mark.parametrize("name", FIXED)
def test_a_network_computes_what_onnxruntime_does(
    name: str, libraries: Any, runtime_python: Path, tmp_path: Path
) -> None:
    example, library = libraries(name)
    inputs = compile_network.random_inputs(onnx.load(example.path), {}, example.graph.input_ranges)
    assert_as_onnxruntime(example, run_once(runtime_python, library, inputs, tmp_path), inputs)


@pytest.mark.parametrize("sizes", RANGE_SIZES)
def test_a_range_of_shapes_is_computed_at_any_size(
    sizes: tuple[int, int], libraries: Any, runtime_python: Path, tmp_path: Path
) -> None:
    example, library = libraries("range")
    inputs = {"x": np.random.default_rng(0).standard_normal((*sizes, 16)).astype("float32")}
    assert_as_onnxruntime(example, run_once(runtime_python, library, inputs, tmp_path), inputs)


def test_a_range_says_its_sizes_and_refuses_others(libraries: Any, runtime_python: Path) -> None:
    script = """
import json, sys, numpy as np
from mallorn_runtime import InputRefused, Session
session = Session(sys.argv[1])
try:
    session.run({"x": np.zeros((6, 9, 16), "float32")})
except InputRefused as error:
    print(json.dumps([session.inputs[0].shape, session.outputs[0].shape, session.ranges, str(error)]))
"""
    shape, result, ranges, words = json.loads(run_python(runtime_python, script, str(libraries("range")[1])))
    assert (shape, result) == (["batch", "length", 16],) * 2
    assert ranges == {"batch": [1, 5], "length": [2, 9]}
    assert "batch is 6" in words


@pytest.mark.parametrize(("rows", "past"), DECODER_SIZES)
def test_a_decoder_computes_prompts_and_steps(
    rows: int, past: int, libraries: Any, runtime_python: Path, tmp_path: Path
) -> None:
    example, library = libraries("decoder")
    inputs = example.inputs(rows, past)
    assert_as_onnxruntime(example, run_once(runtime_python, library, inputs, tmp_path), inputs)


def test_a_decoder_takes_its_caches_back_without_a_copy(libraries: Any, runtime_python: Path) -> None:
    example, library = libraries("decoder")
    script = """
import json, sys, numpy as np
from mallorn_runtime import Session, tensors
copied, copy = [], tensors.copy_array
tensors.copy_array = lambda value: (copied.append(value.shape), copy(value))[1]
session, tokens = Session(sys.argv[1]), [3]
cache = {f"past.{k}": np.zeros((1, 2, 0, 16), "float32") for k in ("key", "value")}
for step in range(int(sys.argv[2])):
    outputs = session.run({
        "input_ids": np.array([[tokens[-1]]]), "position_ids": np.array([[step]]),
        "attention_mask": np.ones((1, step + 1), "int64"), **cache,
    })
    cache = {f"past.{k}": outputs[f"present.{k}"] for k in ("key", "value")}
    tokens.append(int(outputs["logits"][0, -1].argmax()))
print(json.dumps([tokens, [shape for shape in copied if len(shape) == 4 and shape[2]]]))
"""
    steps = BOUNDS["past"][1]
    tokens, copied = json.loads(run_python(runtime_python, script, str(library), str(steps)))
    assert copied == []
    session = onnxruntime.InferenceSession(example.path)
    expected, cache = [3], {f"past.{kind}": np.zeros((1, 2, 0, 16), "float32") for kind in ("key", "value")}
    for step in range(steps):
        inputs = {
            "input_ids": np.array([[expected[-1]]]),
            "position_ids": np.array([[step]]),
            "attention_mask": np.ones((1, step + 1), "int64"),
        }
        logits, *present = session.run(None, inputs | cache)
        cache = dict(zip(cache, present, strict=True))
        expected.append(int(logits[0, -1].argmax()))
    assert tokens == expected


def test_ten_threads_call_at_once(libraries: Any, runtime_python: Path) -> None:
    script = """
import json, sys, threading, numpy as np
from mallorn_runtime import Session
session, results = Session(sys.argv[1]), []
spec = session.inputs[0]
inputs = [np.random.default_rng(seed).random(spec.shape, "float32") for seed in range(10)]
expected = [next(iter(session.run({spec.name: x}).values())) for x in inputs]
def call(number):
    for _ in range(10):
        found = next(iter(session.run({spec.name: inputs[number]}).values()))
        results.append(bool(np.array_equal(found, expected[number])))
threads = [threading.Thread(target=call, args=(number,)) for number in range(10)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
print(json.dumps([len(results), all(results)]))
"""
    assert json.loads(run_python(runtime_python, script, str(libraries("mlp")[1]))) == [100, True]


def test_ten_thousand_calls_take_no_more_memory(libraries: Any, runtime_python: Path) -> None:
    script = """
import gc, sys, numpy as np
from mallorn_runtime import Session
def resident():
    gc.collect()
    return int(open("/proc/self/statm").read().split()[1]) * 4096
session = Session(sys.argv[1])
sizes = [(1, 2), (5, 9), (3, 3)]
inputs = [{"x": np.zeros((*size, 16), "float32")} for size in sizes]
for turn in range(2000):
    session.run(inputs[turn % 3])
before = resident()
for turn in range(10000):
    session.run(inputs[turn % 3])
print(resident() - before)
"""
    assert int(run_python(runtime_python, script, str(libraries("range")[1]))) < 1 << 20


def test_sessions_that_are_gone_leave_no_memory_and_no_threads(libraries: Any, runtime_python: Path) -> None:
    script = """
import gc, json, os, sys, numpy as np
from mallorn_runtime import Session
def figures():
    gc.collect()
    return int(open("/proc/self/statm").read().split()[1]) * 4096, len(os.listdir("/proc/self/task"))
def once():
    session = Session(sys.argv[1], threads=3)
    spec = session.inputs[0]
    session.run({spec.name: np.zeros(spec.shape, "float32")})
for _ in range(5):
    once()
before = figures()
for _ in range(30):
    once()
after = figures()
print(json.dumps([after[0] - before[0], before[1], after[1]]))
"""
    grown, before, after = json.loads(run_python(runtime_python, script, str(libraries("mlp")[1])))
    weights = 2_000_000
    assert grown < 5 * weights
    assert before == after


def test_its_metadata_name_the_job_versions_and_schedules(libraries: Any, runtime_python: Path) -> None:
    script = (
        "import json, sys, mallorn_runtime as m; print(json.dumps(m.read_library_file(sys.argv[1]).meta))"
    )
    meta = json.loads(run_python(runtime_python, script, str(libraries("mlp")[1])))
    assert meta["job"] == "1234"
    assert meta["threads"] == 2
    assert {"mallorn", "apache-tvm", "apache-tvm-ffi"} <= meta["versions"].keys()
    assert len(meta["digests"]["schedules"]) == 64


def test_files_that_are_no_library_are_refused(runtime_python: Path, tmp_path: Path) -> None:
    (tmp_path / "model.onnx").write_bytes(b"\x08\x09")
    script = """
import sys, mallorn_runtime
for path in sys.argv[1:]:
    try:
        mallorn_runtime.Session(path)
    except mallorn_runtime.LibraryRefused as error:
        print(error)
"""
    words = run_python(runtime_python, script, str(tmp_path / "model.onnx"), shutil.which("sh") or "")
    assert words.count("is no library of Mallorn") == 2


def test_the_environment_has_no_compiler_of_tvm_and_nothing_of_mallorn(runtime_python: Path) -> None:
    script = """
import sys, mallorn_runtime
from importlib.util import find_spec
print(sorted(name for name in ("tvm", "mallorn", "scipy", "onnx") if find_spec(name)))
print(sorted(name for name in sys.modules if name.split(".")[0] in ("mallorn", "tvm", "torch")))
"""
    assert run_python(runtime_python, script) == "[]\n[]\n"


def test_torch_is_not_imported_where_it_is_installed(runtime_python: Path, tmp_path: Path) -> None:
    (tmp_path / "torch.py").write_text("raise RuntimeError('somebody imported torch')\n")
    script = f"""
import sys
sys.path.append({str(tmp_path)!r})
import mallorn_runtime
print("torch" in sys.modules)
"""
    assert run_python(runtime_python, script) == "False\n"


@pytest.mark.skipif(CPP is None, reason="needs a C++ compiler")
def test_the_example_in_cpp_is_short_and_computes_the_same(
    libraries: Any, runtime_python: Path, tmp_path: Path
) -> None:
    source = ROOT / "runtime" / "examples" / "cpp"
    assert sum(len(path.read_text().splitlines()) for path in source.iterdir()) < CPP_LINES
    folder = run_python(runtime_python, "import mallorn_runtime as m; print(m.cmake_folder())").strip()
    cmake = shutil.which("cmake")
    assert cmake, "make test-acceptance installs CMake where there is none"
    configure = [cmake, "-S", str(source), "-B", str(tmp_path), f"-Dmallorn_runtime_DIR={folder}"]
    env = os.environ | {"CXX": str(CPP)}
    for command in (configure, [cmake, "--build", str(tmp_path)]):
        done = subprocess.run(command, env=env, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
    example, library = libraries("mlp")
    done = subprocess.run([tmp_path / "call", library, "2"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    numbers = [float(word) for word in done.stdout.partition(":")[2].split()]
    session = onnxruntime.InferenceSession(example.path)
    (spec,) = session.get_inputs()
    expected = session.run(None, {spec.name: np.ones(spec.shape, "float32")})[0].ravel()[:4]
    np.testing.assert_allclose(numbers, expected, rtol=1e-3)
    refused = subprocess.run([tmp_path / "call", cmake], capture_output=True, text=True)
    assert (refused.returncode, refused.stdout) == (1, "")
    assert "is no library of Mallorn" in refused.stderr
    (deep := tmp_path / "deep.so").write_bytes(elf_bytes(b"[" * 100_000))
    refused = subprocess.run([tmp_path / "call", deep], capture_output=True, text=True)
    assert refused.returncode == 1, "TVM's parser of JSON is recursive and must not read this"
    assert "damaged" in refused.stderr


TRY_FILES: Final = """
#include <mallorn_runtime.h>
#include <iostream>
int main(int argc, char** argv) {
  for (int i = 1; i < argc; ++i) {
    try {
      mallorn::Session session(argv[i]);
      std::cout << "loaded\\n";
    } catch (const mallorn::Refused& refusal) {
      std::cout << refusal.what() << "\\n";
    }
  }
}
"""
BAD_NUMBERS: Final = (0, 1, 0xFFFF, 0xFFFFFFFF, 1 << 24, (1 << 63) - 1, (1 << 64) - 1)


def damaged_libraries(folder: Path, count: int) -> list[Path]:
    """Libraries without code: bytes of the ELF file or of the metadata are changed, removed or repeated."""
    draw = random.Random(0)
    spec = {"name": "x\x1b[2J", "dtype": "float32", "shape": ["n", 3]}
    whole = elf_bytes(json.dumps(METADATA | {"inputs": [spec], "ranges": {"n": [1, 8]}}).encode())
    paths = [folder / f"{index}.so" for index in range(count)]
    for path in paths:
        content = bytearray(whole)
        for _ in range(draw.choice((1, 1, 2, 4))):
            place, size = draw.randrange(len(content)), draw.choice((1, 2, 4, 8))
            number = (draw.choice(BAD_NUMBERS) & ((1 << 8 * size) - 1)).to_bytes(size, "little")
            part = bytes(draw.choices(b'[{",:]}0-e\\', k=size * 3))
            content[place : place + size * draw.randrange(2)] = draw.choice((number, part, b""))
        path.write_bytes(content)
    return paths


@pytest.mark.long
@pytest.mark.skipif(CPP is None, reason="needs a C++ compiler")
def test_the_header_refuses_damaged_files_under_sanitizers(tmp_path: Path) -> None:
    (source := tmp_path / "try.cc").write_text(TRY_FILES)
    site = Path(tvm_ffi.__file__).parents[1]
    includes = [f"-I{ROOT / 'runtime' / 'include'}", f"-I{site / 'tvm_ffi' / 'include'}"]
    folders = [site / name / "lib" for name in ("tvm_ffi", "tvm")]
    links = [word for folder in folders for word in (f"-L{folder}", f"-Wl,-rpath,{folder}")]
    libraries = ["-ltvm_ffi", "-Wl,--no-as-needed", "-ltvm_runtime", "-ldl"]
    checks = ["-std=c++17", "-O1", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"]
    program = tmp_path / "try"
    subprocess.run([str(CPP), *checks, *includes, source, *links, *libraries, "-o", program], check=True)
    files = damaged_libraries(tmp_path, 1000)
    done = subprocess.run([program, *files], capture_output=True, text=True, errors="surrogateescape")
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert len(lines) == len(files)
    assert "loaded" not in lines
    assert "\x1b" not in done.stdout
