"""Processes of engines between two timings: to start one takes longer than most."""

from collections import defaultdict
from typing import Self

from workers.interfaces.whole_model_engine import Engine


class IdleEngines:
    """Suspended processes by what they hold; all end with the block."""

    def __init__(self) -> None:
        self._waiting: dict[str, list[Engine]] = defaultdict(list)

    def take(self, kind: str) -> Engine | None:
        """One that goes on; None where none waits."""
        while self._waiting[kind]:
            engine = self._waiting[kind].pop()
            if engine.alive:
                engine.resume()
                return engine
        return None

    def put(self, kind: str, engine: Engine) -> None:
        """Keep one until it is taken."""
        engine.suspend()
        self._waiting[kind].append(engine)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for waiting in self._waiting.values():
            for engine in waiting:
                engine.kill()
