"""Whether the tuned model computes what others compute from the same inputs."""

from collections.abc import Mapping
from typing import Final

from workers.finish.undone import Undone
from workers.racing.engines import UNTUNED, title
from workers.racing.whole_model import ONNXRUNTIME

CHECK: Final = "check the tuned model"
HINT: Final = "mallorn compile MODEL --schedules DIR -o model.so --check"


def check_numbers(errors: Mapping[str, float], limit: float, undone: Undone) -> bool:
    """Whether the tuned model may be shown as a success, by its relative errors against others.

    The untuned model is asked first: it has the same operators in the same order. A model whose answers jump
    with the last digit (a rank, a threshold) may fail this with schedules that are all right, so its job ends
    with them, but without a time that would claim a gain.
    """
    reference = next((name for name in (UNTUNED, ONNXRUNTIME) if name in errors), None)
    if reference is None:
        undone.leave(CHECK, "there was nothing to compare it with; each schedule was checked alone")
        return True
    if not errors[reference] <= limit:
        undone.leave(CHECK, f"it computes something else than {_told(reference, errors, limit)}", HINT)
        return False
    if not errors.get(ONNXRUNTIME, 0.0) <= limit:
        undone.leave(
            "agree with onnxruntime", f"TVM computes something else: {_told(ONNXRUNTIME, errors, limit)}"
        )
    return True


def _told(name: str, errors: Mapping[str, float], limit: float) -> str:
    return f"{title(name)}: relative error {errors[name]:.1e}, allowed {limit:.0e}; its time is left out"
