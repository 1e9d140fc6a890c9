"""Time a tuned model in turn with the same model in torch.

python -m benchmarks.gpu.whole_models KIND HOME OUT MODEL PRECISION PART
"""

import importlib.util
import os
import signal
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from pathlib import Path
from statistics import median
from typing import Any, Final

from benchmarks.gpu.cells import Cells, Row
from benchmarks.gpu.device import device_of, load_runtime
from benchmarks.gpu.part2 import form_name, library_file
from mallorn.stack.supervised_process import DieWithParent

TUNED: Final = "tuned"
EAGER: Final = "torch eager"
COMPILED: Final = "torch.compile"
PASSES: Final = 10
PASS_SEC: Final = 0.2
SEED: Final = 0
Run = Callable[[], list[Any]]  # runs once to its end and returns the outputs as arrays


def main() -> None:
    """Load the forms one by one; time each separately, then all loaded ones in turn."""
    DieWithParent(signal.SIGKILL, os.getppid())()
    kind, home, out, precision, part = sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3]), *sys.argv[5:7]
    cells = Cells(home / f"{part}.jsonl", out / f"{part}.jsonl")
    file, model = home / "models" / f"{sys.argv[4]}.onnx", form_name(sys.argv[4], precision)
    inputs = _inputs(file)
    has_torch = importlib.util.find_spec("torch") is not None
    forms = cache(lambda: Torch(kind, file, inputs, precision))
    runs: dict[str, Run] = {}
    makers: list[tuple[str, Callable[[], Run]]] = [
        (TUNED, lambda: _tuned(kind, library_file(home, part, model), inputs)),
        (EAGER, lambda: forms().eager()),
        (COMPILED, lambda: forms().compiled()),
    ]
    for name, make in makers:
        is_timed = f"{model}: {name} alone" in cells

        def time_separately(name: str = name, make: Callable[[], Run] = make) -> Row:
            if name != TUNED and not has_torch:
                return {"ok": None, "left_out": "torch is not installed"}
            runs[name] = make()
            return {"us": _pass_us(runs[name])}

        cells.measure(f"{model}: {name} alone", time_separately)
        if is_timed and (name == TUNED or has_torch):
            with suppress(Exception):  # its cell holds the error
                runs[name] = make()
        if len(runs) > 1:
            together = " and ".join(runs)
            cells.measure(f"{model}: {together} in turn", lambda: _in_turn(dict(runs)))


class Torch:
    """The model converted to torch; in another precision than float32, weights and real inputs have that."""

    def __init__(self, kind: str, file: Path, inputs: list[Any], precision: str = "float32") -> None:
        import onnx
        import onnx2torch
        import torch
        from onnx.compose import add_prefix

        self._torch: Any = torch
        # Without a prefix, a weight named like a method of the module would hide the method.
        module = onnx2torch.convert(add_prefix(onnx.load(str(file)), "onnx_")).eval()
        _fix_shapes(module, [torch.from_numpy(array) for array in inputs])
        dtype = {"float32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}[precision]
        self._module = module.to(kind, dtype)
        tensors = [torch.from_numpy(array).to(kind) for array in inputs]
        self._inputs = [each.to(dtype) if each.is_floating_point() else each for each in tensors]

    def eager(self) -> Run:
        """Return the model in eager mode."""
        return self._run_of(self._module)

    def compiled(self) -> Run:
        """Return the model compiled with max-autotune; on a GPU it uses CUDA graphs."""
        run = self._run_of(self._torch.compile(self._module, mode="max-autotune"))
        run()
        return run

    def _run_of(self, module: Any) -> Run:
        def run() -> list[Any]:
            with self._torch.inference_mode():
                result = module(*self._inputs)
            outputs = list(result) if isinstance(result, tuple | list) else [result]
            return [output.float().cpu().numpy() for output in outputs]

        return run


def _fix_shapes(module: Any, inputs: list[Any]) -> None:
    """Replace computed shapes of reshapes, which Dynamo cannot trace, by those of one run."""
    import torch

    class Reshape(torch.nn.Module):
        def __init__(self, shape: tuple[int, ...]) -> None:
            super().__init__()
            self._shape = shape

        def forward(self, tensor: Any, _computed: Any) -> Any:
            return tensor.reshape(self._shape)

    shapes: dict[str, tuple[int, ...]] = {}

    def note(name: str) -> Callable[[Any, Any, Any], None]:
        def hook(_module: Any, _inputs: Any, output: Any) -> None:
            shapes[name] = tuple(output.shape)

        return hook

    reshapes = [pair for pair in module.named_modules() if type(pair[1]).__name__ == "OnnxReshape"]
    hooks = [reshape.register_forward_hook(note(name)) for name, reshape in reshapes]
    with torch.inference_mode():
        module(*inputs)
    for hook in hooks:
        hook.remove()
    for name, shape in shapes.items():
        module.set_submodule(name, Reshape(shape))


def _tuned(kind: str, library: Path, inputs: list[Any]) -> Run:
    load_runtime(kind)
    import tvm
    from tvm.runtime.vm import VirtualMachine

    device = device_of(kind)
    machine = VirtualMachine(tvm.runtime.load_module(str(library)), device)
    tensors = [tvm.runtime.tensor(array, device) for array in inputs]

    def run() -> list[Any]:
        result = machine["main"](*tensors)
        return [each.numpy() for each in ([result] if hasattr(result, "numpy") else result)]

    return run


def _inputs(file: Path) -> list[Any]:
    import numpy as np
    import onnx

    model = onnx.load(str(file), load_external_data=False)
    weights = {tensor.name for tensor in model.graph.initializer}
    rng, values = np.random.default_rng(SEED), []
    for value in model.graph.input:
        if value.name not in weights:
            kind = value.type.tensor_type
            shape = [dimension.dim_value for dimension in kind.shape.dim]
            dtype = onnx.helper.tensor_dtype_to_np_dtype(kind.elem_type)
            is_integer = np.issubdtype(dtype, np.integer)
            content = rng.integers(0, 2, shape) if is_integer else rng.standard_normal(shape)
            values.append(content.astype(dtype))
    return values


def _in_turn(runs: dict[str, Run]) -> Row:
    """Return each form's median time over alternating passes, and errors to the first."""
    import numpy as np

    times: dict[str, list[float]] = {name: [] for name in runs}
    for number in range(PASSES):
        for name in sorted(runs, reverse=bool(number % 2)):
            times[name].append(round(_pass_us(runs[name]), 2))
    outputs = {name: run() for name, run in runs.items()}
    first = next(iter(outputs.values()))
    errors = {
        name: max(float(np.linalg.norm(a - b) / np.linalg.norm(b)) for a, b in zip(own, first, strict=True))
        for name, own in outputs.items()
    }
    return {
        "us": {name: median(values) for name, values in times.items()},
        "all_us": {name: list(values) for name, values in times.items()},
        "errors": dict(errors),
    }


def _pass_us(run: Run) -> float:
    """Return the median time of runs in one pass, at least three runs."""
    run()
    taken_us: list[float] = []
    began_sec = time.perf_counter()
    while len(taken_us) < 3 or time.perf_counter() - began_sec < PASS_SEC:
        started_sec = time.perf_counter()
        run()
        taken_us.append((time.perf_counter() - started_sec) * 1e6)
    return median(taken_us)


if __name__ == "__main__":
    main()
