"""onnxruntime on the processor, in an interpreter of its own."""

from typing import Any

import onnxruntime
from serving import Arrays, Run, serve


def load(model: str, inputs: Arrays, threads: int) -> Run:
    """A session with all optimisations; a busy onnxruntime is stopped with its process between turns."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])

    def run() -> list[Any]:
        return list(session.run(None, inputs))

    return run


if __name__ == "__main__":
    serve(load)
