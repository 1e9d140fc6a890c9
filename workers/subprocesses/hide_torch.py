"""Keeps processes that load TVM from importing torch, which TVM imports if it is installed."""

import sys
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec


class _TorchHider(MetaPathFinder):
    def find_spec(self, fullname: str, path: object, target: object = None) -> ModuleSpec | None:
        if fullname == "torch":
            raise ModuleNotFoundError("torch cannot be imported together with TVM", name=fullname)
        return None


def hide_torch() -> None:
    """Make `import torch` fail in this process: it takes seconds and is not needed."""
    sys.meta_path.insert(0, _TorchHider())
