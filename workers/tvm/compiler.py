"""The compiler child: sketches, validity, traces and libraries of candidates."""

import os
from collections.abc import Callable
from typing import Any, Final

# A compiler runs nothing in parallel, and threads that spin would disturb what is being measured.
os.environ.setdefault("TVM_NUM_THREADS", "1")

from workers.children.serve import serve
from workers.tvm.build import build, build_reference
from workers.tvm.lowered import code, statements
from workers.tvm.programs import parse_tvm_target, vector_lanes
from workers.tvm.rebuild import full_trace, validate
from workers.tvm.sketches import design_space


def warm_up(target: str) -> None:
    """Import all that a build for this target needs."""
    parse_tvm_target(target)


METHODS: Final[dict[str, Callable[..., Any]]] = {
    "warm_up": warm_up,
    "vector_lanes": vector_lanes,
    "design_space": design_space,
    "validate": validate,
    "full_trace": full_trace,
    "statements": statements,
    "code": code,
    "build": build,
    "build_reference": build_reference,
}

if __name__ == "__main__":
    serve(METHODS)
