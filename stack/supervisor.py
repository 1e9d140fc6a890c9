"""Starts named processes, keeps them running, and stops them together."""

import math
import signal
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

from mallorn.core.errors import Unavailable
from mallorn.stack.supervised_process import ChildSpec, SupervisedChild, trim_log

POLL_SEC = 0.05
TRIM_EVERY_SEC = 10.0
KILLED_SEC = 30.0  # how long the kernel may take to end a killed process


class PartFailed(Unavailable):
    """A process of the service ends again and again."""


@dataclass(frozen=True)
class RestartPatience:
    """Delays and limits for restarting and stopping child processes."""

    first_delay_sec: float = 0.5
    longest_delay_sec: float = 30.0
    failures_in_a_row: int = 4
    stable_sec: float = 20.0  # a process that ran this long resets its count of failures
    grace_sec: float = 6.0  # between SIGTERM and SIGKILL


@dataclass(eq=False)
class Supervisor:
    """Starts children in the order of their needs, and keeps them running until stopped.

    A child that dies is restarted with a growing delay. If it fails `failures_in_a_row`
    times without having been stable, an essential child stops everything with PartFailed,
    which names it and quotes its log; other children are not started again. Use it only
    from the main thread: it handles SIGINT and SIGTERM, and the kernel sends a child its
    death signal when the thread that started it ends.
    """

    specs: Sequence[ChildSpec]
    logs: Path
    on_ready: Callable[[str], None] = lambda _: None
    on_restart: Callable[[str, str], None] = lambda _name, _reason: None
    on_give_up: Callable[[str, str], None] = lambda _name, _reason: None
    patience: RestartPatience = RestartPatience()
    while_ending: Callable[[], None] = lambda: None

    def __post_init__(self) -> None:
        self._children: list[SupervisedChild] = []
        self._failures: dict[str, int] = {}
        self._start_at: dict[str, float] = {}
        for spec in self.specs:
            self.add(spec)
        self._seen_ready: set[str] = set()
        self._trim_at = 0.0
        self.stopping = False

    @contextmanager
    def run_children(self) -> Iterator[None]:
        """Handle signals, and start children without needs; stop all when the block ends."""
        handlers = {n: signal.signal(n, self._on_signal) for n in (signal.SIGINT, signal.SIGTERM)}
        try:
            self._check_children()
            yield
        finally:
            self.stopping = True
            # Children that others need are stopped last.
            required = {name for child in self._children for name in child.spec.needs}
            for is_required in (False, True):
                self._stop_children([c for c in self._children if (c.spec.name in required) is is_required])
            for number, handler in handlers.items():
                signal.signal(number, handler)

    def add(self, spec: ChildSpec) -> None:
        """Add a child; it starts once the children that it needs are ready."""
        self._children.append(SupervisedChild(spec, self.logs / f"{spec.name}.log"))
        self._failures[spec.name], self._start_at[spec.name] = 0, 0.0

    def remove(self, name: str) -> None:
        """Stop a child, wait for its end, and forget it."""
        leaving = [child for child in self._children if child.spec.name == name]
        self._children = [child for child in self._children if child.spec.name != name]
        self._seen_ready.discard(name)
        self._stop_children(leaving)

    def are_ready(self, names: Iterable[str]) -> bool:
        return {child.spec.name for child in self._children if child.ready}.issuperset(names)

    def start_children(self, must_stop: Callable[[], bool] = lambda: False) -> bool:
        """Return True once all children are ready, False on a signal or if `must_stop`."""
        self.watch_children(lambda: all(child.ready for child in self._children) or must_stop())
        return all(child.ready for child in self._children)

    def watch_children(self, must_stop: Callable[[], bool] = lambda: False) -> None:
        """Keep the children running until a signal comes or `must_stop` returns True."""
        while not self.stopping:
            self._check_children()
            if must_stop():
                return
            time.sleep(POLL_SEC)

    def _check_children(self) -> None:
        for child in self._children:
            if child.is_running:
                name, age = child.spec.name, time.monotonic() - child.started_at
                if child.ready:
                    if age > self.patience.stable_sec:
                        self._failures[name] = 0
                elif child.check_ready():
                    if name not in self._seen_ready:
                        self._seen_ready.add(name)
                        self.on_ready(name)
                elif age > child.spec.start_timeout_sec:
                    self._give_up(child, f"was not ready after {child.spec.start_timeout_sec:.0f} s")
            elif child.pid is not None and child.started_at:
                self._handle_exit(child)
            elif time.monotonic() >= self._start_at[child.spec.name] and self.are_ready(child.spec.needs):
                child.start()
        if time.monotonic() > self._trim_at:
            self._trim_at = time.monotonic() + TRIM_EVERY_SEC
            # This includes logs that parts write themselves, such as a device's executions.
            for log in self.logs.glob("*.log"):
                trim_log(log)

    def _handle_exit(self, child: SupervisedChild) -> None:
        name, cause = child.spec.name, f"ended with exit code {child.exit_code}"
        if child.exit_code is not None and child.exit_code < 0:
            cause = f"was killed by {signal.Signals(-child.exit_code).name}"
        child.signal_group(signal.SIGKILL)  # processes it left in its group
        child.started_at, child.ready = 0.0, False
        self._failures[name] += 1
        if self._failures[name] >= self.patience.failures_in_a_row:
            self._give_up(child, f"{cause} {self._failures[name]} times in a row")
            return
        delay_sec = self.patience.first_delay_sec * 2 ** (self._failures[name] - 1)
        self._start_at[name] = time.monotonic() + min(delay_sec, self.patience.longest_delay_sec)
        self.on_restart(name, cause)

    def _give_up(self, child: SupervisedChild, problem: str) -> None:
        lines = "\n".join(f"  {line}" for line in child.last_lines())
        failed = PartFailed(
            f"the part `{child.spec.name}` {problem}; its log ends with\n{lines}", hint=f"less {child.log}"
        )
        if child.spec.essential:
            raise failed
        self._start_at[child.spec.name] = math.inf
        self._stop_children([child])
        child.started_at = 0.0
        self.on_give_up(child.spec.name, f"{problem}; see {child.log}")

    def _on_signal(self, _number: int, _frame: FrameType | None) -> None:
        if self.stopping:  # a second signal: kill at once
            self._signal_all(self._children, signal.SIGKILL)
        self.stopping = True

    def _stop_children(self, group: Sequence[SupervisedChild]) -> None:
        self._signal_all(group, signal.SIGTERM)
        deadline = time.monotonic() + self.patience.grace_sec
        while any(child.is_running for child in group) and time.monotonic() < deadline:
            self.while_ending()
            time.sleep(POLL_SEC)
        self._signal_all(group, signal.SIGKILL)
        for child in group:
            child.wait_for_exit(KILLED_SEC)

    @staticmethod
    def _signal_all(children: Sequence[SupervisedChild], number: signal.Signals) -> None:
        for child in children:
            child.signal_group(number)
