"""A whole model on a device: its virtual machine runs there, driven over RPC."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from workers.tvm.remote_device import RemoteDevice

_ENTRY = "main"


class RemoteModel:
    """A model with its inputs on a device; whoever calls sees to the deadline."""

    def __init__(self, device: RemoteDevice, library: Path, inputs: Path) -> None:
        self._device = device
        self._name = device.upload(library)
        with np.load(inputs) as archive:
            arrays = [np.asarray(archive[name], order="C") for name in archive.files]
        self._args = device.copy_args(arrays)
        self._machine = self._ready()
        self._watched: Any = None

    def outputs(self) -> list[Any]:
        """What one run computes, in order."""
        self._machine.invoke_stateful(_ENTRY)
        return [tensor.numpy() for tensor in self._outputs()]

    def time(self, number: int) -> Sequence[float]:
        """Seconds of so many runs."""
        return self._device.time_machine(self._machine, number)

    def time_kernels(self, seconds: float) -> dict[str, float]:
        """Microseconds a run spends in each kernel, in a machine that is watched from now on."""
        if self._watched is None:
            self._watched = self._ready(uses_graphs=False)
        return self._device.time_kernels(self._watched, seconds)

    def _ready(self, uses_graphs: bool = True) -> Any:
        machine = self._device.machine(self._name, uses_graphs)
        machine.set_input(_ENTRY, *self._args)
        return machine

    def _outputs(self, *place: int) -> Iterator[Any]:
        """Of outputs that are tuples of tuples, the tensors in order.

        The machine's own get_outputs leaves a cycle behind, which keeps the session open for a while.
        """
        module = self._machine.module
        arity = module["get_output_arity"](_ENTRY, *place)
        if arity == -1:
            yield module["get_output"](_ENTRY, *place)
        for index in range(arity):
            yield from self._outputs(*place, index)
