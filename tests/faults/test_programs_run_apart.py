"""Programs of a model run apart from the process that answers with keys, comparisons and scripts."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tvm
import tvm_ffi
from onnx import helper
from tvm import relax, te
from tvm.script import from_source

from mallorn.cli.host_checks import tvm_process
from mallorn.client.onnx_export import to_onnx
from mallorn.core.errors import MallornError
from mallorn.workers.interfaces.model_compiler import ModelCompiler
from mallorn.workers.interfaces.tensor_arguments import Arguments, Tensor
from mallorn.workers.sandbox.sandbox import BEST_EFFORT, WHOLE
from mallorn.workers.sandbox.sandbox_support import probe_sandbox_support
from mallorn.workers.subprocesses.errors import ChildCrashed, ChildFailed
from mallorn.workers.tvm.compile.program_evaluator import ProgramEvaluator, ProgramFailed, redirect_folding
from mallorn.workers.tvm.network.graph_recipes import PLAIN
from tests.fixtures.onnx_network import saved

TARGET = '{"kind": "llvm", "num-cores": 2}'
HOST = tvm.target.Target("llvm")
FAR = 2**30
SIZE = 16
needs_walls = pytest.mark.skipif(
    probe_sandbox_support("best-effort") != WHOLE, reason="the kernel here confines processes only in part"
)


# It writes far behind the end of its output.
far_store = from_source(f"""
@T.prim_func(private=True, s_tir=True)
def far_store(a: T.Buffer(({SIZE},), "float32"), b: T.Buffer(({SIZE},), "float32")):
    for i in range({SIZE}):
        with T.sblock("store"):
            j = T.axis.spatial({SIZE}, i)
            b[j + {FAR}] = a[j]
""")


# Calls of the C library in a program, each of which fails in its process.
CALLS = {
    "make a file": '"open", "{folder}/made", 65, 384',
    "write to a file": '"open", "{folder}/secret", 1',
    "read a file of the user": '"open", "{folder}/secret", 0',
    "make a socket": '"socket", 2, 1, 0',
    "start a process": '"fork"',
    "signal another process": '"kill", {pid}, 0',
    "write to a file of its parent": '"write", {fd}, "forged", 6',
}


def calling(calls: list[str]) -> Any:
    """A program that stores what each call returns."""
    lines = [f'    out[{i}] = T.call_extern("int32", {call})' for i, call in enumerate(calls)]
    head = f'@T.prim_func(s_tir=True)\ndef main(out: T.Buffer(({len(calls)},), "int32")):'
    return tvm.IRModule({"main": from_source("\n".join([head, *lines]))})


def network(function: Any) -> Any:
    """A network that adds its input to what the function makes of a constant."""
    tensor = relax.TensorType([SIZE], "float32")
    builder = relax.BlockBuilder()
    callee, x = builder.add_func(function, "callee"), relax.Var("x", tensor)
    with builder.function("main", [x]):
        with builder.dataflow():
            weights = relax.const(np.arange(SIZE, dtype="float32"))
            made = builder.emit(relax.call_tir(callee, [weights], tensor))
            result = builder.emit_output(relax.op.add(x, made))
        builder.emit_func_output(result)
    return builder.get()


@pytest.fixture(scope="module")
def compiler(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ModelCompiler]:
    with ModelCompiler(name="graphs", room=tmp_path_factory.mktemp("room")) as child:
        child.warm_up(TARGET)
        yield child


def room_of(child: ModelCompiler) -> Path:
    assert child.sandbox_spec.room is not None
    return child.sandbox_spec.room


@pytest.fixture
def evaluator() -> Iterator[ProgramEvaluator]:
    with ProgramEvaluator(BEST_EFFORT) as made:
        yield made
    made._server.close()
    os.waitpid(-1, 0)


def doubled(size: int = SIZE) -> Any:
    a = te.placeholder((size,), name="a")
    return tvm.IRModule({"main": te.create_prim_func([a, te.compute((size,), lambda i: a[i] * 2.0)])})


def is_doubled(evaluator: ProgramEvaluator) -> bool:
    ones, result = evaluator.run(doubled(), HOST, [np.ones(SIZE, "float32"), np.zeros(SIZE, "float32")])
    return bool((ones == 1).all() and (result == 2).all())


@needs_walls
def test_a_program_reaches_nothing_but_its_arrays(evaluator: ProgramEvaluator, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("secret")
    with (tmp_path / "log").open("w") as log:
        place = {"folder": tmp_path, "pid": os.getpid(), "fd": log.fileno()}
        program = calling([call.format_map(place) for call in CALLS.values()])
        (returned,) = evaluator.run(program, HOST, [np.zeros(len(CALLS), "int32")])
    assert dict(zip(CALLS, returned.tolist(), strict=True)) == dict.fromkeys(CALLS, -1)
    assert {file.name: file.read_text() for file in tmp_path.iterdir()} == {"secret": "secret", "log": ""}


def test_a_program_has_no_open_files_but_its_own(evaluator: ProgramEvaluator) -> None:
    program = calling([f'"fcntl", {fd}, 1' for fd in range(3, 64)])
    (flags,) = evaluator.run(program, HOST, [np.zeros(61, "int32")])
    assert (flags >= 0).sum() == 1  # its requests


def test_a_program_that_crashes_is_named_and_the_next_one_runs(evaluator: ProgramEvaluator) -> None:
    program = tvm.IRModule({"main": far_store.with_attr("global_symbol", "main")})
    for _ in range(2):
        with pytest.raises(ProgramFailed, match="killed by SIGSEGV"):
            evaluator.run(program, HOST, [np.zeros(SIZE, "float32")] * 2)
        assert is_doubled(evaluator)


def test_forged_answers_of_a_program_reach_no_other_program(evaluator: ProgramEvaluator) -> None:
    forged = calling([f'"write", {fd}, "0forged", 7' for fd in range(3, 32)] * 3)
    with pytest.raises((ProgramFailed, MemoryError), match="killed by SIGKILL"):  # as its answer is too long
        evaluator.run(forged, HOST, [np.zeros(87, "int32")])
    with evaluator:  # its process ends
        pass
    assert is_doubled(evaluator)


def test_a_program_that_breaks_its_connection_harms_no_other(evaluator: ProgramEvaluator) -> None:
    calls = [f'"shutdown", {fd}, 2' for fd in range(3, 32)]  # of both directions
    calls += [f'"ftruncate64", {fd}, T.int64({size})' for fd in range(3, 32) for size in (0, 1 << 30)]
    calls += [f'"fcntl", {fd}, 1033, 14' for fd in range(3, 32)]  # seals: shrink, grow, write
    with pytest.raises((ProgramFailed, MemoryError)):
        evaluator.run(calling(calls), HOST, [np.zeros(len(calls), "int32")])
    with evaluator:  # its process ends
        pass
    assert is_doubled(evaluator)
    million = evaluator.run(doubled(1 << 20), HOST, [np.ones(1 << 20, "float32")] * 2)
    assert (million[1] == 2).all()  # which needs more memory than before


def test_a_program_changes_outputs_alone(evaluator: ProgramEvaluator) -> None:
    arrays = [np.ones(SIZE, "float32"), np.full(SIZE, 7, "float32")]
    (doubles,) = evaluator.call(evaluator.build(doubled(), HOST, "main"), arrays, first_output=1)
    assert [set(array) for array in (*arrays, doubles)] == [{1}, {7}, {2}]


def test_constants_fold_to_the_same_bits(evaluator: ProgramEvaluator) -> None:
    x = relax.Var("x", relax.TensorType([8, 12], "float32"))
    builder = relax.BlockBuilder()
    with builder.function("main", [x]):
        with builder.dataflow():
            numbers = relax.const(np.linspace(-3, 3, 96, dtype="float32").reshape(8, 12))
            shares = builder.emit(relax.op.nn.softmax(builder.emit(relax.op.exp(numbers))))
            half = builder.emit(relax.op.astype(shares, "bfloat16"))
            rounded = builder.emit(relax.op.astype(half, "float32"))
            result = builder.emit_output(relax.op.add(x, rounded))
        builder.emit_func_output(result)
    mod, stock = builder.get(), tvm.get_global_func("tirx.build")
    expected = relax.transform.FoldConstant()(mod)
    try:
        redirect_folding(evaluator)
        folded = relax.transform.FoldConstant()(mod)
    finally:
        tvm_ffi.register_global_func("tirx.build", stock, override=True)
    [binding] = folded["main"].body.blocks[0].bindings
    [expected_binding] = expected["main"].body.blocks[0].bindings
    numbers, expected_numbers = (each.value.args[1].value.numpy() for each in (binding, expected_binding))
    assert np.array_equal(numbers, expected_numbers)


def test_a_fold_that_crashes_fails_its_model_alone(compiler: ModelCompiler) -> None:
    pid = compiler.pid
    model = to_onnx(network(far_store), room_of(compiler) / "far.onnx")
    with pytest.raises(MallornError) as caught:
        compiler.extract(str(model), TARGET, PLAIN, {})
    assert not isinstance(caught.value, ChildCrashed), caught.value
    assert compiler.list_passes()
    assert compiler.pid == pid


def test_a_reference_that_crashes_fails_its_program_alone(compiler: ModelCompiler) -> None:
    pid, files = compiler.pid, [str(room_of(compiler) / name) for name in ("in.npz", "out.npz")]
    program = tvm.IRModule({"main": far_store.with_attr("global_symbol", "main")})
    tensor = Tensor("TENSOR", "float32", (SIZE,))
    with pytest.raises(MallornError) as caught:
        compiler.write_reference(tvm.ir.save_json(program), Arguments((tensor, tensor), (1,), {}), 1, *files)
    assert not isinstance(caught.value, ChildCrashed), caught.value
    assert compiler.list_passes()
    assert compiler.pid == pid


@needs_walls
def test_a_command_s_process_reads_its_model_and_writes_no_file_of_the_user(tmp_path: Path) -> None:
    relu = helper.make_node("Relu", ["x"], ["y"])
    model, other = (
        saved(tmp_path / name, [relu], {"x": [1, 3]}, {"y": [1, 3]}) for name in ("a.onnx", "b.onnx")
    )
    (dumped := tmp_path / "dumped").mkdir()
    with tvm_process(Path(model), writes=[dumped]) as graphs:
        with pytest.raises(ChildFailed, match="Permission denied"):
            graphs.report_passes(model, TARGET, PLAIN.name, {}, [], str(tmp_path))
        with pytest.raises(MallornError):
            graphs.read_signature(other, {})
        graphs.report_passes(model, TARGET, PLAIN.name, {}, [], str(dumped))
    assert sorted(file.name for file in tmp_path.iterdir()) == ["a.onnx", "b.onnx", "dumped"]
    assert list(dumped.iterdir())
