"""Keeps torch out of processes that load TVM, whose library imports it where it is installed."""

import sys
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec


class _TorchHider(MetaPathFinder):
    def find_spec(self, fullname: str, path: object, target: object = None) -> ModuleSpec | None:
        if fullname == "torch":
            raise ModuleNotFoundError("torch is not imported beside TVM", name=fullname)
        return None


def hide_torch() -> None:
    """Let `import torch` fail in this process: it takes seconds, and nothing uses it beside TVM."""
    sys.meta_path.insert(0, _TorchHider())
