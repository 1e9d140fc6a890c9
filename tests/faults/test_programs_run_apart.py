"""Programs of a model run apart from the process that answers with keys, comparisons and scripts."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tvm
from tvm import relax
from tvm.script import tirx as T

from mallorn.core.errors import MallornError
from mallorn.onnx_export import to_onnx
from mallorn.workers.interfaces.model_compiler import ModelCompiler
from mallorn.workers.interfaces.tensor_arguments import Arguments, Tensor
from mallorn.workers.subprocesses.errors import ChildCrashed
from mallorn.workers.tvm.graph_recipes import PLAIN, stored_recipe

TARGET = '{"kind": "llvm", "num-cores": 2}'
FAR = 2**30
SIZE = 16


@T.prim_func(private=True, s_tir=True)
def far_store(a: T.Buffer((SIZE,), "float32"), b: T.Buffer((SIZE,), "float32")) -> None:
    """Write far behind the end of its output."""
    for i in range(SIZE):
        with T.sblock("store"):
            j = T.axis.spatial(SIZE, i)
            b[j + FAR] = a[j]


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
    assert child._walls.room is not None
    return child._walls.room


def test_a_fold_that_crashes_fails_its_model_alone(compiler: ModelCompiler) -> None:
    pid = compiler.pid
    model = to_onnx(network(far_store), room_of(compiler) / "far.onnx")
    with pytest.raises(MallornError) as caught:
        compiler.extract(str(model), TARGET, stored_recipe(PLAIN), {})
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
