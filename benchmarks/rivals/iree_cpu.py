"""IREE's local-task device: imported from ONNX and compiled for this processor."""

import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from iree import runtime
from serving import Arrays, Run, serve

# What IREE documents for speed on CPUs, and its maintainers advise for convolutions (iree-org/iree#22674).
# Options only: an unknown option is refused, an unknown pass in a pipeline is reported and left out.
FLAGS = (
    "--iree-hal-target-backends=llvm-cpu",
    "--iree-llvmcpu-target-cpu=host",
    "--iree-opt-level=O3",
    "--iree-opt-data-tiling",
    "--iree-llvmcpu-enable-ukernels=all",
    "--iree-global-opt-use-im2col-for-convs",
)


def load(model: str, inputs: Arrays, threads: int) -> Run:
    """A module compiled once into a temporary folder."""
    with tempfile.TemporaryDirectory() as folder:
        imported, compiled = Path(folder, "model.mlir"), Path(folder, "model.vmfb")
        _tool("iree.compiler.tools.import_onnx", model, "-o", imported, "--opset-version", "17")
        subprocess.run(
            [Path(sys.executable).with_name("iree-compile"), imported, *FLAGS, "-o", compiled], check=True
        )
        binary = compiled.read_bytes()
    runtime.flags.parse_flags(f"--task_topology_max_group_count={threads}")
    config = runtime.Config("local-task")
    module = runtime.load_vm_module(runtime.VmModule.copy_buffer(config.vm_instance, binary), config)
    name = next(
        name for name in module.vm_module.function_names if not name.startswith("__") and "$" not in name
    )
    arrays = [runtime.asdevicearray(config.device, array) for array in inputs.values()]

    def run() -> list[Any]:
        result = module[name](*arrays)
        results = result if isinstance(result, tuple | list) else [result]
        return [np.asarray(array) for array in results]

    return run


def _tool(module: str, *words: object) -> None:
    subprocess.run([sys.executable, "-m", module, *map(str, words)], check=True)


if __name__ == "__main__":
    serve(load)
