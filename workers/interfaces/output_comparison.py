"""What outputs are compared by, and the result; batches take this module along, without pydantic."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Reference:
    """Data for comparing a program's outputs with those of the unscheduled program."""

    outputs: list[int]  # indices of the output arguments
    reduction_len: int  # number of terms of the longest sum
    rounds: bool = False  # rounds to integers: a value between two may become either
    float16_error: float = 0.0  # relative error of rounding to float16 inside the program
    floats: tuple[float, float] = (-1.0, 1.0)  # range of random inputs


@dataclass(frozen=True, slots=True)
class Agreement:
    """The largest error of a program's outputs, and whether all are within `tolerance`."""

    max_error: float
    tolerance: float
    ok: bool

    @property
    def description(self) -> str:
        return f"relative error {self.max_error:.2g}, allowed {self.tolerance:.2g}"
