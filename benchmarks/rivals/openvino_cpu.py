"""OpenVINO on the processor, in single precision or in what it takes by itself."""

import os
from typing import Any

import openvino
from serving import Arrays, Run, serve


def load(model: str, inputs: Arrays, threads: int) -> Run:
    """One stream for the shortest latency; OPENVINO_PRECISION=default leaves the precision to OpenVINO."""
    options: dict[str, Any] = {
        "INFERENCE_NUM_THREADS": threads,
        "NUM_STREAMS": 1,
        "PERFORMANCE_HINT": "LATENCY",
    }
    if os.environ.get("OPENVINO_PRECISION", "f32") != "default":
        options["INFERENCE_PRECISION_HINT"] = "f32"
    core = openvino.Core()
    request = core.compile_model(core.read_model(model), "CPU", options).create_infer_request()
    for index, array in enumerate(inputs.values()):
        request.set_input_tensor(index, openvino.Tensor(array))

    def run() -> list[Any]:
        request.infer()
        return [tensor.data for tensor in request.output_tensors]

    return run


if __name__ == "__main__":
    serve(load)
