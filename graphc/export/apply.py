"""Compile an ONNX model with the schedules beside this file, using stock TVM alone.

python -m venv tvm-venv && tvm-venv/bin/pip install -r requirements.txt
tvm-venv/bin/python apply.py MODEL.onnx [-o model.so] [--check] [--version loaded]

--check compares with onnxruntime; --version loaded takes what is fastest beside other programs. The passes
lie in graphc.zip, which Python imports as it is: unzip -l lists them.

Exits with 1 and a sentence if the model is not the one that was tuned, or if something is missing.
"""

import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE / "graphc.zip"))

from graphc.export.apply_command import main  # noqa: E402 - the archive has to be on the path

if __name__ == "__main__":
    main(HERE)
