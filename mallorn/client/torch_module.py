"""Tuned libraries as torch modules. Its import raises MissingPackage without torch or mallorn_runtime."""

from pathlib import Path
from typing import Any

from mallorn.core.errors import MissingPackage

try:
    import torch

    from mallorn_runtime import Session
except ModuleNotFoundError as error:
    hint = "pip install 'mallorn[torch]' mallorn-runtime   (the wheel lies beside Mallorn's)"
    raise MissingPackage(f"calling a library from torch needs {error.name}", hint=hint) from None


class TunedModule(torch.nn.Module):
    """A library as a module for inference: no gradients, no weights of its own.

    Takes the tensors of the original model, by position or by name.
    """

    def __init__(self, library: Path) -> None:
        super().__init__()
        self.session = Session(library)
        self._names = [info.name for info in self.session.inputs]

    def run(self, *args: torch.Tensor, **kwargs: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Return all outputs in the order of the original. Raises TypeError and InputRefused.

        Contiguous tensors are passed, and outputs returned, without copies.
        """
        if len(args) + len(kwargs) != len(self._names):
            raise TypeError(f"the model takes each of these inputs once: {', '.join(self._names)}")
        tensors = {**dict(zip(self._names, args, strict=False)), **kwargs}
        outputs = self.session.run({name: tensor.detach() for name, tensor in tensors.items()})
        return tuple(map(torch.utils.dlpack.from_dlpack, outputs.values()))

    def forward(self, *args: torch.Tensor, **kwargs: torch.Tensor) -> Any:
        """Return the only output, or a tuple. Raises what `run` raises."""
        outputs = self.run(*args, **kwargs)
        return outputs[0] if len(outputs) == 1 else outputs
