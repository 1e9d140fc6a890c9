"""PyTorch compiled by Inductor, tuned as far as it tunes itself."""

import torch
from serving import Arrays, Run, serve
from torch_eager import convert, runner


def load(model: str, inputs: Arrays, threads: int) -> Run:
    """The module after torch.compile: weights frozen, products chosen by timing, called from C++."""
    torch.set_num_threads(threads)
    torch._inductor.config.freezing = True
    torch._inductor.config.cpp_wrapper = True
    run = runner(torch.compile(convert(model), mode="max-autotune-no-cudagraphs"), inputs)
    run()
    return run


if __name__ == "__main__":
    serve(load)
