"""Machine code of candidates, without what costs a compiler time and a kernel nothing.

- No checks of arguments, which are most of a small kernel's code: the runner makes them as they are wanted.
- LLVM's scheduler compares each access to memory with up to 1,000 before it in its block. That is most of the
  time that huge unrolled bodies take, and with a fifth of it instructions come out in nearly the same order.
"""

import json
from functools import lru_cache
from typing import Any, Final

import tvm

from workers.tvm.bodies import Sizes, Watch
from workers.tvm.programs import parse_tvm_target

COMPARED_ACCESSES: Final = 200


def generate(module: Any, target: str, sizes: Sizes | None = None) -> Any:
    """The library of a scheduled module, in memory. Raises BodyTooLarge beside those `sizes`."""
    watches = [] if sizes is None else [Watch(sizes)]
    try:
        with tvm.transform.PassContext(config={"tirx.disable_assert": True}, instruments=watches):
            return tvm.tirx.build(module, target=_compiled_for(target))
    except RuntimeError as error:  # TVM's own, whatever the watch raised
        for watch in watches:
            if watch.refused is not None:
                raise watch.refused from error
        raise


@lru_cache(maxsize=8)
def _compiled_for(target: str) -> Any:
    parsed, attrs = parse_tvm_target(target), json.loads(target)
    if parsed.kind.name != "llvm" or "tag" in attrs:
        return parsed
    return tvm.target.Target(attrs | {"cl-opt": [f"-dag-maps-huge-region:uint={COMPARED_ACCESSES}"]})
