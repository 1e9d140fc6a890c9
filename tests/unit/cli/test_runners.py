"""The programs that call a compiled model: what stands in them, and which files are left alone."""

import ast
from pathlib import Path
from typing import Any

from mallorn.cli.compile_and_bench import Callee, shell_commands, write_runners
from mallorn.core.targets import parse_target
from mallorn.core.values.graph_report import TensorSpec

CPU = parse_target({"kind": "llvm", "num-cores": 3})
CUDA = parse_target({"kind": "cuda", "arch": "sm_80"})
INPUTS = [
    TensorSpec(name='ids"$library', dtype="int64", shape=[1, 7]),
    TensorSpec(name="scale", dtype="float32", shape=[]),
]
OUTPUTS = [TensorSpec(name="y", dtype="float32", shape=[])]


def callee(library: Path, **changes: Any) -> Callee:
    ranges = {'ids"$library': [0, 50]}
    values: dict[str, Any] = {"target": CPU, "inputs": INPUTS, "outputs": OUTPUTS, **changes}
    return Callee(library=library, input_ranges=ranges, versions={"apache-tvm": "1.2"}, **values)


def test_they_name_the_model_s_own_inputs(tmp_path: Path) -> None:
    python, cpp = write_runners(callee(tmp_path / "my model.so"))
    code = python.read_text()
    inputs = next(
        ast.literal_eval(node.value)
        for node in ast.parse(code).body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "INPUTS"
    )
    assert inputs == [('ids"$library', "int64", (1, 7), (0, 50)), ("scale", "float32", (), (0, 1))]
    assert 'with_name("my model.so")' in code
    assert '"TVM_NUM_THREADS", "3"' in code
    assert all('"TVM_BIND_THREADS", "0"' in program.read_text() for program in (python, cpp))
    assert '{"ids\\"$library", "int64", {1, 7}},\n    {"scale", "float32", {}}' in cpp.read_text()
    assert "apache-tvm==1.2" in code


def test_a_program_of_ours_is_written_anew_and_another_s_is_left_alone(tmp_path: Path) -> None:
    library = tmp_path / "m.so"
    write_runners(callee(library))
    (tmp_path / "run.cc").write_text("int main() {}")
    [python] = write_runners(callee(library, outputs=[TensorSpec(name="z", dtype="float32", shape=[])]))
    assert "['z']" in python.read_text()
    assert (tmp_path / "run.cc").read_text() == "int main() {}"


def test_a_gpu_s_library_is_called_there(tmp_path: Path) -> None:
    python, cpp = write_runners(callee(tmp_path / "m.so", target=CUDA))
    assert 'DEVICE = "cuda"' in python.read_text()
    assert "{kDLCUDA, 0}" in cpp.read_text()
    assert "-ltvm_runtime_cuda" in shell_commands(cpp, tmp_path / "m.so", CUDA)[1]


def test_paths_with_blanks_are_quoted() -> None:
    _, compiled, started = shell_commands(Path("my dir/run.cc"), Path("my dir/m.so"), CPU)
    assert "'my dir/run.cc' -o 'my dir/run'" in compiled
    assert started == "'my dir/run' 'my dir/m.so'"
    assert shell_commands(Path("run.cc"), Path("m.so"), CPU)[-1] == "./run m.so"
