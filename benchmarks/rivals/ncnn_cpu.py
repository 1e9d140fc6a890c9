"""ncnn: converted by its own pnnx, in single precision."""

import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import ncnn
import numpy as np
from serving import Arrays, Run, serve

# How pnnx says, in the script it writes, what ncnn calls inputs and outputs and which axis is the batch.
INPUT = re.compile(r'ex\.input\("(\w+)", ncnn\.Mat\(.*?batch_index=(\d+)')
OUTPUT = re.compile(r'ex\.extract\("(\w+)"\)\s+.*?batch_index=(\d+)')
# Winograd, packed layouts and a blocked product are on as they come.
REDUCED = (
    "use_fp16_packed",
    "use_fp16_storage",
    "use_fp16_arithmetic",
    "use_bf16_storage",
    "use_bf16_packed",
)


def load(model: str, inputs: Arrays, threads: int) -> Run:
    """A network whose weights and sums are all float32."""
    net = ncnn.Net()
    net.opt.num_threads = threads
    for option in REDUCED:
        setattr(net.opt, option, False)
    with tempfile.TemporaryDirectory() as folder:
        script = _convert(model, folder)
        if net.load_param(f"{folder}/model.ncnn.param") or net.load_model(f"{folder}/model.ncnn.bin"):
            raise ValueError("pnnx wrote operators that ncnn does not have")
    entries = [
        (name, ncnn.Mat(_narrow(array), batch_index=int(batch)).clone())
        for (name, batch), array in zip(INPUT.findall(script), inputs.values(), strict=True)
    ]
    ends = [(name, int(batch)) for name, batch in OUTPUT.findall(script)]

    def run() -> list[Any]:
        with net.create_extractor() as extractor:
            for name, entry in entries:
                extractor.input(name, entry)
            return [np.array(extractor.extract(name)[1].numpy(batch_index=batch)) for name, batch in ends]

    return run


def _convert(model: str, folder: str) -> str:
    """Writes the network, and returns the script that shows how it is called."""
    shutil.copyfile(model, f"{folder}/model.onnx")
    pnnx = Path(sys.executable).with_name("pnnx")
    subprocess.run([pnnx, "model.onnx", "fp16=0", "optlevel=2"], cwd=folder, check=True)
    return Path(folder, "model_ncnn.py").read_text()


def _narrow(array: Any) -> Any:
    """ncnn has no numbers of eight bytes."""
    return array.astype(np.int32) if array.dtype == np.int64 else array


if __name__ == "__main__":
    serve(load)
