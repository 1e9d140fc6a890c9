"""PyTorch compiled by AMD's zentorch, with frozen weights."""

import os

import torch
from serving import Arrays, Run, serve
from torch_eager import convert, runner


def load(model: str, inputs: Arrays, threads: int) -> Run:
    """The module after torch.compile with zentorch as its back end."""
    os.environ["TORCHINDUCTOR_FREEZING"] = "1"
    import zentorch  # noqa: F401  registers the back end

    torch.set_num_threads(threads)
    torch._inductor.config.freezing = True
    run = runner(torch.compile(convert(model), backend="zentorch"), inputs)
    run()
    return run


if __name__ == "__main__":
    serve(load)
