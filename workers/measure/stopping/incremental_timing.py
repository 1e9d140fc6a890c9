"""Takes one timing, as long as the evaluator asks for, in pieces that are not thrown away.

TVM guesses how many runs last `min_repeat_ms`. If the guess is too low, it discards the
timing and takes a longer one; if the first runs were slow, it takes far too long a timing.
Here each piece is as long as the pieces before it show to be missing, and all undisturbed
pieces count. Pieces during which other programs had the processors are taken again as long
as the budget allows.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import ceil
from statistics import fmean
from typing import Final, Protocol

from mallorn.core.outcomes import is_disturbed
from mallorn.workers.device.slice_timing_result import SliceTimes


class Evaluator(Protocol):
    """The length of a timing, with fields as in `EvaluatorOptions`."""

    @property
    def number(self) -> int: ...
    @property
    def repeat(self) -> int: ...
    @property
    def min_repeat_ms(self) -> int: ...


@dataclass(frozen=True, slots=True)
class Piece:
    """Consecutive runs that were timed as one interval."""

    runs: int
    mean_sec: float
    disturbed: float | None = None  # share of its time that other programs had; None: unknown

    @property
    def sec(self) -> float:
        return self.runs * self.mean_sec


# Takes the number of runs in a piece and the number of pieces.
TimePieces = Callable[[int, int], Sequence[Piece]]
# The same, but returns a device's report.
TimeSlices = Callable[[int, int], SliceTimes]

# Share of a timing whose length is set by the rough estimate; the rest is set by its result.
FIRST_SHARE: Final = 0.5
MARGIN: Final = 1.02
# A piece has at most so many times the runs of the one before: a clock may report no time at all.
GROWTH: Final = 100
# Gaps that other programs leave are more often as long as this than longer.
PIECE_SEC: Final = 0.01
NO_TIME_SEC: Final = 1e-10
# The undisturbed share of a timing, or of its means, that suffices if the rest was disturbed.
ENOUGH: Final = 0.5
SEC_US: Final = 1e6


@dataclass
class Patience:
    """The time budget, in seconds, for repeating disturbed pieces."""

    left_sec: float = 0.0
    lost_sec: float = 0.0  # spent so far

    def charge_lost_time(self, pieces: Sequence[Piece]) -> None:
        lost_sec = sum(piece.sec for piece in pieces)
        self.left_sec -= lost_sec
        self.lost_sec += lost_sec


class CandidateTimes:
    """The times of one candidate, and how other programs disturbed them."""

    def __init__(self, patience_sec: float) -> None:
        self._patience = Patience(patience_sec)
        self._means: list[Piece] = []
        self._reports: list[SliceTimes] = []

    def time_once(self, options: Evaluator, rough_sec: float, time_slices: TimeSlices) -> list[float]:
        """Take one timing, and return its means in microseconds."""

        def time_pieces(number: int, count: int) -> list[Piece]:
            report = time_slices(number, count)
            self._reports.append(report)
            return [Piece(number, *mean) for mean in report.slices]

        means = take_timing(options, rough_sec, time_pieces, self._patience)
        self._means += means
        return [mean.mean_sec * SEC_US for mean in means]

    @property
    def run_us(self) -> list[float]:
        """Run times in microseconds: only undisturbed ones, if these are enough."""
        return [mean.mean_sec * SEC_US for mean in self._accepted_pieces()]

    @property
    def other_programs_share(self) -> float | None:
        """Share of the processors' time that other programs had; None if unknown."""
        shares = [mean.disturbed for mean in self._accepted_pieces() if mean.disturbed is not None]
        return fmean(shares) if shares else None

    def disturbance(self) -> dict[str, float | str]:
        """Return the fields of a `Disturbance` that summarises all timings."""
        return {
            "candidates": 1,
            "upper_bounds": int(is_disturbed(self.other_programs_share)),
            "valid_sec": sum(mean.sec for mean in self._means),
            "repeated_sec": self._patience.lost_sec,
            "other_programs": fmean(report.rivals for report in self._reports) if self._reports else 0.0,
            "cores": max((report.cores for report in self._reports), default=0),
            "has_priority": all(report.raised for report in self._reports),
            "gpu": next((words for report in self._reports for words in report.gpu), ""),
        }

    def _accepted_pieces(self) -> Sequence[Piece]:
        """Return the undisturbed mean times if these are enough, else all mean times."""
        quiet = [mean for mean in self._means if not is_disturbed(mean.disturbed)]
        return quiet if len(quiet) >= ENOUGH * len(self._means) else self._means


def take_timing(
    options: Evaluator, rough_sec: float, time_pieces: TimePieces, patience: Patience
) -> list[Piece]:
    """Time pieces (series of runs) until there are `repeat` mean times, each over at least
    `number` runs that last `min_repeat_ms` together. Disturbed pieces are timed again while
    `patience` has seconds left."""
    means: list[Piece] = []
    for _ in range(options.repeat):
        mean = _PartialMean(options, rough_sec)
        while not mean.is_long_enough(mean.quiet) and (patience.left_sec >= 0 or not mean.has_pieces):
            patience.charge_lost_time(mean.add(time_pieces(*mean.estimate_missing_runs())))
        means.append(
            _combined(mean.quiet) if mean.is_long_enough(mean.quiet) else mean.mean_of_least_disturbed()
        )
    return means


class _PartialMean:
    """The pieces (series of runs) timed so far for one of a timing's mean times."""

    def __init__(self, options: Evaluator, rough_sec: float) -> None:
        self._fewest, self._wanted_sec = options.number, options.min_repeat_ms / 1e3
        self._rough_sec = rough_sec
        self._last_runs = 0
        self.quiet: list[Piece] = []
        self._disturbed: list[Piece] = []

    def estimate_missing_runs(self) -> tuple[int, int]:
        """Return how many runs per piece, and how many pieces, likely complete the mean."""
        runs, sec = _sums(self.quiet)
        samples = self.quiet or self._disturbed
        if not samples:
            run_sec, left_sec, limit = self._rough_sec, self._wanted_sec * FIRST_SHARE, GROWTH**3
        else:
            run_sec, limit = _combined(samples).mean_sec, self._last_runs * GROWTH
            left_sec = (self._wanted_sec - sec) * MARGIN
        self._last_runs = max(1, self._fewest - runs, min(limit, ceil(left_sec / max(run_sec, NO_TIME_SEC))))
        pieces = ceil(self._last_runs / max(1, round(PIECE_SEC / max(run_sec, NO_TIME_SEC))))
        return ceil(self._last_runs / pieces), pieces

    def add(self, pieces: Sequence[Piece]) -> list[Piece]:
        disturbed = [piece for piece in pieces if is_disturbed(piece.disturbed)]
        self.quiet += (piece for piece in pieces if not is_disturbed(piece.disturbed))
        self._disturbed += disturbed
        return disturbed

    @property
    def has_pieces(self) -> bool:
        return bool(self.quiet or self._disturbed)

    def is_long_enough(self, pieces: Sequence[Piece], share: float = 1.0) -> bool:
        """Return whether the pieces have this share of the runs and seconds to be timed."""
        runs, sec = _sums(pieces)
        return runs > 0 and runs >= share * self._fewest and sec >= share * self._wanted_sec

    def mean_of_least_disturbed(self) -> Piece:
        """Return the mean of the undisturbed pieces; if these are too few, also use the
        pieces that were least disturbed."""
        best = list(self.quiet)
        if not self.is_long_enough(best, ENOUGH):
            for piece in sorted(self._disturbed, key=lambda piece: piece.disturbed or 0.0):
                if self.is_long_enough(best):
                    break
                best.append(piece)
        return _combined(best)


def _sums(pieces: Sequence[Piece]) -> tuple[int, float]:
    return sum(piece.runs for piece in pieces), sum(piece.sec for piece in pieces)


def _combined(pieces: Sequence[Piece]) -> Piece:
    runs, sec = _sums(pieces)
    lost_secs = [piece.sec * piece.disturbed for piece in pieces if piece.disturbed is not None]
    return Piece(runs, sec / runs, sum(lost_secs) / sec if lost_secs and sec else None)
