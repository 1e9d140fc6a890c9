"""One timing as the evaluator asks for it, that never starts over.

TVM guesses how many runs last `min_repeat_ms` and, where the guess falls short, throws the timing away and
takes a longer one; where the first runs were slow, it takes one much too long. Here a timing is taken in
pieces: each is as long as the pieces before say is missing, and all of them count in which the processors
were ours. Those in which others had them are taken again, as long as there is patience.

run_batch.py has this module, too: it imports nothing but what `pack_batch.SHARED` lists.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import ceil
from statistics import fmean
from typing import Final, Protocol

from mallorn.core.outcomes import is_disturbed
from workers.device.slice_timing_result import SliceTimes


class Evaluator(Protocol):
    """The length of a timing, as `EvaluatorOptions` has it."""

    @property
    def number(self) -> int: ...

    @property
    def repeat(self) -> int: ...

    @property
    def min_repeat_ms(self) -> int: ...


@dataclass(frozen=True, slots=True)
class Piece:
    """Runs back to back."""

    runs: int
    mean_sec: float
    disturbed: float | None = None  # the share of it in which its processors were others'; None: not known

    @property
    def sec(self) -> float:
        return self.runs * self.mean_sec


# So many runs a piece, so many pieces.
TimePieces = Callable[[int, int], Sequence[Piece]]
# The same, as a device tells them.
TimeSlices = Callable[[int, int], SliceTimes]

# The share of a timing that trusts the rough idea; the rest is cut to what this piece found.
FIRST_SHARE: Final = 0.5
MARGIN: Final = 1.02
# A piece has at most so many times the runs of the one before: a clock may say that nothing took no time.
GROWTH: Final = 100
# Others leave gaps that are as long as this more often than longer ones.
PIECE_SEC: Final = 0.01
NO_TIME_SEC: Final = 1e-10
# What of a timing, or of its means, suffices where the rest was disturbed.
ENOUGH: Final = 0.5
SEC_US: Final = 1e6


@dataclass
class Patience:
    """How long a timing may look for moments in which nothing disturbs it."""

    left_sec: float = 0.0
    lost_sec: float = 0.0  # that were taken again

    def lose(self, pieces: Sequence[Piece]) -> None:
        lost_sec = sum(piece.sec for piece in pieces)
        self.left_sec -= lost_sec
        self.lost_sec += lost_sec


class CandidateTimes:
    """The times of one candidate, and what others had of its device meanwhile."""

    def __init__(self, patience_sec: float) -> None:
        self._patience = Patience(patience_sec)
        self._means: list[Piece] = []
        self._told: list[SliceTimes] = []

    def take(self, options: Evaluator, rough_sec: float, time_slices: TimeSlices) -> list[float]:
        """Take one timing, and return its means in microseconds."""

        def time_pieces(number: int, count: int) -> list[Piece]:
            told = time_slices(number, count)
            self._told.append(told)
            return [Piece(number, *each) for each in told.slices]

        means = take_timing(options, rough_sec, time_pieces, self._patience)
        self._means += means
        return [mean.mean_sec * SEC_US for mean in means]

    @property
    def run_us(self) -> list[float]:
        """Return the run times that count."""
        return [mean.mean_sec * SEC_US for mean in self._counting()]

    @property
    def share(self) -> float | None:
        """Return the share of these times in which others had the processors; None: unknown."""
        shares = [mean.disturbed for mean in self._counting() if mean.disturbed is not None]
        return fmean(shares) if shares else None

    def disturbance(self) -> dict[str, float | str]:
        """Return the fields of a `Disturbance`."""
        return {
            "timed": 1,
            "bounds": int(is_disturbed(self.share)),
            "kept_sec": sum(mean.sec for mean in self._means),
            "lost_sec": self._patience.lost_sec,
            "rivals": fmean(told.rivals for told in self._told) if self._told else 0.0,
            "cores": max((told.cores for told in self._told), default=0),
            "raised": all(told.raised for told in self._told),
            "gpu": next((words for told in self._told for words in told.gpu), ""),
        }

    def _counting(self) -> Sequence[Piece]:
        """Return the means that were not disturbed, where they are enough."""
        quiet = [mean for mean in self._means if not is_disturbed(mean.disturbed)]
        return quiet if len(quiet) >= ENOUGH * len(self._means) else self._means


def take_timing(
    options: Evaluator, rough_sec: float, time_pieces: TimePieces, patience: Patience
) -> list[Piece]:
    """`repeat` means, each of at least `number` runs that last `min_repeat_ms` together."""
    return [_mean(_Taken(options, rough_sec), time_pieces, patience) for _ in range(options.repeat)]


def _mean(taken: "_Taken", time_pieces: TimePieces, patience: Patience) -> Piece:
    while not taken.suffices(taken.kept):
        if patience.left_sec < 0 and taken.has_pieces:
            return taken.least_disturbed()
        patience.lose(taken.add(time_pieces(*taken.missing())))
    return _together(taken.kept)


class _Taken:
    """The pieces of a mean so far."""

    def __init__(self, options: Evaluator, rough_sec: float) -> None:
        self._fewest, self._wanted_sec = options.number, options.min_repeat_ms / 1e3
        self._rough_sec = rough_sec
        self._asked = 0
        self.kept: list[Piece] = []
        self._lost: list[Piece] = []

    def missing(self) -> tuple[int, int]:
        """How many runs a piece, and how many pieces, are likely to complete the mean."""
        runs, sec = _sums(self.kept)
        known = self.kept or self._lost
        if not known:
            each_sec, left_sec, most = self._rough_sec, self._wanted_sec * FIRST_SHARE, GROWTH**3
        else:
            each_sec, most = _together(known).mean_sec, self._asked * GROWTH
            left_sec = (self._wanted_sec - sec) * MARGIN
        self._asked = max(1, self._fewest - runs, min(most, ceil(left_sec / max(each_sec, NO_TIME_SEC))))
        pieces = ceil(self._asked / max(1, round(PIECE_SEC / max(each_sec, NO_TIME_SEC))))
        return ceil(self._asked / pieces), pieces

    def add(self, found: Sequence[Piece]) -> list[Piece]:
        """Those that were disturbed."""
        lost = [piece for piece in found if is_disturbed(piece.disturbed)]
        self.kept += (piece for piece in found if not is_disturbed(piece.disturbed))
        self._lost += lost
        return lost

    @property
    def has_pieces(self) -> bool:
        return bool(self.kept or self._lost)

    def suffices(self, pieces: Sequence[Piece], share: float = 1.0) -> bool:
        """Whether they are so much of what the evaluator asks for."""
        runs, sec = _sums(pieces)
        return runs > 0 and runs >= share * self._fewest and sec >= share * self._wanted_sec

    def least_disturbed(self) -> Piece:
        """What the quiet moments say, where they were enough; else no less than the time that it takes."""
        best = list(self.kept)
        if not self.suffices(best, ENOUGH):
            for piece in sorted(self._lost, key=lambda each: each.disturbed or 0.0):
                if self.suffices(best):
                    break
                best.append(piece)
        return _together(best)


def _sums(pieces: Sequence[Piece]) -> tuple[int, float]:
    return sum(piece.runs for piece in pieces), sum(piece.sec for piece in pieces)


def _together(pieces: Sequence[Piece]) -> Piece:
    runs, sec = _sums(pieces)
    known = [piece.sec * piece.disturbed for piece in pieces if piece.disturbed is not None]
    return Piece(runs, sec / runs, sum(known) / sec if known and sec else None)
