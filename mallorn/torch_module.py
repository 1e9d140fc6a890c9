"""Tuned libraries as torch modules. Importing this module imports torch."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from mallorn.core.installation import IMPORT_ROOT, MissingPackage


def open_session(library: str | os.PathLike[str]) -> Any:
    """Return a `mallorn_runtime.Session` of a library. Raises MissingPackage without that package."""
    try:
        from mallorn_runtime import Session
    except ModuleNotFoundError as error:
        if error.name != "mallorn_runtime":
            raise
        source = IMPORT_ROOT / "runtime"
        hint = f"pip install {source if source.is_dir() else 'mallorn-runtime'}"
        raise MissingPackage(
            "calling a library needs mallorn_runtime, which is not installed", hint=hint
        ) from None
    return Session(Path(library))


def call_session(session: Any, tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """Call a library with tensors in the order of its inputs; return its outputs in order.

    Contiguous tensors are passed, and outputs returned, without copies.
    """
    inputs = {
        spec.name: tensor.detach() if tensor.requires_grad else tensor
        for spec, tensor in zip(session.inputs, tensors, strict=True)
    }
    return [torch.utils.dlpack.from_dlpack(output) for output in session.run(inputs).values()]


class TunedModule(torch.nn.Module):
    """A tuned model as a module for inference: no gradients, no weights of its own.

    Takes the tensors of the original model, by position or by name, and returns its outputs
    in the same order: one tensor, or a tuple.
    """

    def __init__(self, session: Any) -> None:
        super().__init__()
        self.session = session
        self.input_names: tuple[str, ...] = tuple(spec.name for spec in session.inputs)
        self.output_names: tuple[str, ...] = tuple(spec.name for spec in session.outputs)

    def forward(self, *args: torch.Tensor, **kwargs: torch.Tensor) -> Any:
        """Call the library. Raises TypeError for other inputs than the model's."""
        tensors = dict(zip(self.input_names, args, strict=False))
        if len(args) > len(self.input_names) or tensors.keys() & kwargs:
            raise TypeError(f"the model takes each of {', '.join(self.input_names)} once")
        tensors |= kwargs
        if tensors.keys() != set(self.input_names):
            raise TypeError(
                f"the model takes {', '.join(self.input_names)}, and was given "
                f"{', '.join(tensors) or 'nothing'}"
            )
        outputs = call_session(self.session, [tensors[name] for name in self.input_names])
        return outputs[0] if len(outputs) == 1 else tuple(outputs)
