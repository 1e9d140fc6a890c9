"""Whether the tuned model computes what others compute from the same inputs."""

from collections.abc import Mapping
from typing import Final

from workers.finish.undone import Undone

# What the graph recipe's faster forms of erf and exp may cost is far below; a wrong schedule is far above.
LARGEST_ERROR: Final = {"float32": 1e-4, "bf16": 5e-2}
CHECK: Final = "check the tuned model"
HINT: Final = "mallorn compile MODEL --schedules DIR -o model.so --check"


def check_numbers(errors: Mapping[str, float], precision: str, undone: Undone) -> bool:
    """Whether the tuned model may be shown as a success, by its relative errors against others.

    The untuned model is asked first: it has the same operators in the same order. A model whose answers jump
    with the last digit (a rank, a threshold) may fail this with schedules that are all right, so its job ends
    with them, but without a time that would claim a gain.
    """
    limit = LARGEST_ERROR[precision]
    reference = next((name for name in ("untuned", "onnxruntime") if name in errors), None)
    if reference is None:
        undone.leave(CHECK, "there was nothing to compare it with; each schedule was checked alone")
        return True
    if not errors[reference] <= limit:
        undone.leave(CHECK, f"it computes something else than {_told(reference, errors, limit)}", HINT)
        return False
    if not errors.get("onnxruntime", 0.0) <= limit:
        undone.leave(
            "agree with onnxruntime", f"TVM computes something else: {_told('onnxruntime', errors, limit)}"
        )
    return True


def _told(name: str, errors: Mapping[str, float], limit: float) -> str:
    title = {"untuned": "the untuned model"}.get(name, name)
    return f"{title}: relative error {errors[name]:.1e}, allowed {limit:.0e}; its time is left out"
