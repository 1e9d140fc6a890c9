"""How long a job that is followed still takes, the finish included."""

import time
from collections.abc import Callable
from typing import Any, Final

from mallorn.core.finishing import finish_sec
from mallorn.core.states import JobState

# How much of the way a new estimate moves the old one: single rounds are fast or slow by chance.
TRUST: Final = 0.3
LONG_SEC: Final = 90 * 60.0


class Pace:
    """Estimates from the trials since the view opened; between two looks the time left only falls."""

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._start: tuple[float, int] | None = None
        self._seen = 0
        self._tuned_at: float | None = None
        self._finishing_since: float | None = None

    def left(self, body: dict[str, Any]) -> str:
        """In words; empty where nobody can tell."""
        now_sec = self._clock()
        left_sec = self._left_sec(body, now_sec)
        return "" if left_sec is None or left_sec <= 0 else about(left_sec)

    def _left_sec(self, body: dict[str, Any], now_sec: float) -> float | None:
        if body["state"] == JobState.FINISHING:
            if self._finishing_since is None:
                self._finishing_since = now_sec
            return self._finishing_since + _finish_sec(body) - now_sec
        self._finishing_since = None
        if body["state"] != JobState.TUNING:
            return None
        self._look(body, now_sec)
        known = (self._by_trials(body, now_sec), _by_clock(body, now_sec))
        return min((left_sec for left_sec in known if left_sec is not None), default=None)

    def _look(self, body: dict[str, Any], now_sec: float) -> None:
        """Move the estimated end of the tuning where trials came in since the last look."""
        spent, budget = body["progress"]["trials"], body["trials"]
        if self._start is None:
            self._start, self._seen = (now_sec, spent), spent
        if budget is None or spent == self._seen:
            return
        self._seen = spent
        since_sec, first = self._start
        ends_at = now_sec + (now_sec - since_sec) / (spent - first) * max(0, budget - spent)
        before = ends_at if self._tuned_at is None else self._tuned_at
        self._tuned_at = before + TRUST * (ends_at - before)

    def _by_trials(self, body: dict[str, Any], now_sec: float) -> float | None:
        if self._tuned_at is None:
            return None
        return max(0.0, self._tuned_at - now_sec) + _finish_sec(body)


def about(seconds: float) -> str:
    """As coarse as such an estimate is: `about 4 min left`."""
    if seconds < 45:
        return "less than a minute left"
    if seconds < LONG_SEC:
        return f"about {max(1, round(seconds / 60))} min left"
    return f"about {seconds / 3600:.1f} h left"


def _by_clock(body: dict[str, Any], now_sec: float) -> float | None:
    """Minutes hold from the submit to the first export."""
    if body["minutes"] is None or body["exported"]:
        return None
    return float(body["created_at"] + 60 * body["minutes"] - now_sec)


def _finish_sec(body: dict[str, Any]) -> float:
    """As long as the job's last finish took, else as long as is set aside for one."""
    known = (body["report"] or {}).get("finish_sec")
    return finish_sec(body["progress"]["tasks"]) if known is None else float(known)
