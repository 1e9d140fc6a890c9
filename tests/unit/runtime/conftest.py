"""A small compiled library: two inputs, a product, an input that is passed on, and a weight."""

from pathlib import Path
from typing import Any

import pytest

from tests.fixtures.onnx_network import saved


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`y = 2 x + b`, `same = b`, `weight`: the last two are no memory of their own."""
    import numpy as np
    import tvm
    from tvm import relax

    from mallorn.graphc.export.build_library import export_library
    from mallorn.graphc.export.library_metadata import describe_library

    weight = relax.const(np.arange(8, dtype="float32"))
    types = relax.TensorType((4, 8), "float32"), relax.TensorType((8,), "float32")
    x, b = (relax.Var(name, kind) for name, kind in zip("xb", types, strict=True))
    builder = relax.BlockBuilder()
    with builder.function("main", [x, b]):
        doubled = builder.emit(relax.op.add(x, x))
        y = builder.emit(relax.op.add(doubled, b))
        builder.emit_func_output(relax.Tuple([y, b, weight]))
    target = tvm.target.Target({"kind": "llvm", "num-cores": 3})

    def specs(**shapes: list[int]) -> list[dict[str, Any]]:
        return [{"name": name, "dtype": "float32", "shape": shape} for name, shape in shapes.items()]

    path = tmp_path_factory.mktemp("library") / "model.so"
    model = saved(path.with_suffix(".onnx"), [], {}, {})
    metadata = describe_library(
        target,
        {"job": "1234", "versions": {"mallorn": "0"}},
        specs(x=[4, 8], b=[8]),
        specs(y=[4, 8], same=[8], weight=[8]),
        {"model": Path(model)},
    )
    export_library(tvm.compile(builder.get(), target), str(path), target, metadata)
    return path
