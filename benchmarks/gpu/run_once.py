"""Run a library once, for NVIDIA's tools: python -m benchmarks.gpu.run_once KIND LIBRARY ARGS"""

import json
import os
import signal
import sys

from benchmarks.gpu.arithmetic import random_inputs
from benchmarks.gpu.device import device_of, load_runtime
from mallorn.stack.supervised_process import DieWithParent


def main() -> None:
    """Load the library, make its arguments and call it once."""
    DieWithParent(signal.SIGKILL, os.getppid())()  # a tool that takes too long is killed with its program
    kind, library, args = sys.argv[1], sys.argv[2], json.loads(sys.argv[3])
    load_runtime(kind)
    import tvm

    device = device_of(kind)
    arrays = random_inputs(args)
    tensors = [tvm.runtime.empty(each.shape, str(each.dtype), device).copyfrom(each) for each in arrays]
    tvm.runtime.load_module(library)["main"](*tensors)
    device.sync()


if __name__ == "__main__":
    main()
