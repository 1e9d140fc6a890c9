"""onnxruntime for a program under an emulator, in which its package crashes: a native Python runs it.

NATIVE_PYTHON names that Python. It stands for what `mallorn.graphc.export.compare_with_onnxruntime` calls.
"""

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any

import numpy as np

GraphOptimizationLevel = SimpleNamespace(ORT_DISABLE_ALL="ORT_DISABLE_ALL")


class SessionOptions:
    """Takes what a session may be told; only the level of optimisation changes results."""

    graph_optimization_level = "ORT_ENABLE_ALL"


class InferenceSession:
    """Runs a model, a file or its bytes, in a native process per call."""

    def __init__(self, model: str | bytes, options: SessionOptions, providers: Sequence[str]) -> None:
        self._model, self._level = model, options.graph_optimization_level

    def run(self, names: None, feeds: Mapping[str, Any]) -> list[Any]:
        """Return all outputs."""
        with TemporaryDirectory() as name:
            folder, model = Path(name), self._model
            if isinstance(model, bytes):
                (folder / "model.onnx").write_bytes(model)
                model = str(folder / "model.onnx")
            np.savez(folder / "in.npz", **feeds)
            command = [os.environ["NATIVE_PYTHON"], __file__, model, str(folder), self._level]
            environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
            subprocess.run(command, env=environment, check=True)
            with np.load(folder / "out.npz") as outputs:
                return [outputs[f"arr_{index}"] for index in range(len(outputs.files))]


def main(model: str, folder: str, level: str) -> None:
    """Run a model natively: inputs and outputs are files of the folder."""
    del sys.path[0]  # this file's folder, where the module has the name of the package
    sys.modules.pop("onnxruntime", None)
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = getattr(onnxruntime.GraphOptimizationLevel, level)
    with np.load(f"{folder}/in.npz") as feeds:
        outputs = onnxruntime.InferenceSession(model, options).run(None, dict(feeds))
    np.savez(f"{folder}/out.npz", *outputs)


if __name__ == "__main__":
    main(*sys.argv[1:])
