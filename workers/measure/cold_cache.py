"""Whether a program is timed with an empty cache: inside a model its weights come from memory."""

from math import prod
from typing import Final

from mallorn.core.job_options import EvaluatorOptions
from mallorn.core.targets import Target
from mallorn.core.values.machine import element_bytes
from workers.interfaces.tensor_arguments import Arguments

# An input that has this share of all bytes is read once or a few times, and reading it is the work.
DOMINATES: Final = 0.9


def empties_cache(evaluator: EvaluatorOptions, args: Arguments, target: Target) -> bool:
    """Return whether a GPU's L2 cache is emptied before each run of a program with these arguments.

    With `auto` it is emptied where one input is nearly all that the program reads and writes. Repeated runs
    would read that input from the cache, or a part of it, and inside a model it comes from memory.
    """
    if target.kind != "cuda" or evaluator.flush_l2 != "auto":
        return target.kind == "cuda" and evaluator.flush_l2 == "on"
    sizes = [prod(shape) * element_bytes(dtype) for _, dtype, shape in args.args]
    inputs = (size for index, size in enumerate(sizes) if index not in args.outputs)
    return max(inputs, default=0) >= DOMINATES * sum(sizes)
