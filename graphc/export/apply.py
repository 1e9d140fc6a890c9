"""Compile an ONNX model with the schedules in this directory, using stock TVM only.

python -m venv tvm-venv && tvm-venv/bin/pip install -r requirements.txt
tvm-venv/bin/python apply.py MODEL.onnx [-o model.so] [--check] [--set loaded]

--check compares results with onnxruntime. --set loaded uses the schedules for busy
machines. The graph passes are in graphc.zip, which Python imports directly.

Exits with 1 and a message if the model is not the tuned one or something is missing.
"""

import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE / "graphc.zip"))

from mallorn.graphc.export.apply_schedules_main import main  # noqa: E402 - the archive has to be on the path

if __name__ == "__main__":
    main(HERE)
