"""A model's file in onnxruntime, whose execution provider runs what Mallorn compiled of it."""

import os
from pathlib import Path
from typing import Any

import onnxruntime
from serving import Arrays, Run, serve

import mallorn_runtime.onnxruntime as mallorn


def load(model: str, inputs: Arrays, threads: int) -> Run:
    """A session of the file with the directory `tuned` beside it."""
    mallorn.LIBRARY = Path(os.environ["MALLORN_PROVIDER"])  # type: ignore[misc]  # this checkout's
    options = mallorn.session_options(Path(model).with_name("tuned"))
    options.intra_op_num_threads = threads
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(model, options)

    def run() -> list[Any]:
        return list(session.run(None, inputs))

    return run


if __name__ == "__main__":
    serve(load)
