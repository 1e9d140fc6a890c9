"""Compile an ONNX model with the schedules in this directory, using stock TVM only.

python -m venv tvm-venv && tvm-venv/bin/pip install -r requirements.txt
tvm-venv/bin/python apply.py MODEL.onnx [-o model.so] [--check] [--version loaded]

--check compares results with onnxruntime; --version loaded takes the version for busy machines. The passes
are in graphc.zip, which Python imports directly; unzip -l lists them.

Exits with 1 and an error message if the model is not the tuned one, or if something is missing.
"""

import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE / "graphc.zip"))

from graphc.export.apply_command import main  # noqa: E402 - the archive has to be on the path

if __name__ == "__main__":
    main(HERE)
