"""Those who ask a busy coordinator: watchers of events, and visitors whose requests are timed."""

import time
from collections import defaultdict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from random import Random
from threading import Event, Lock, Thread

from mallorn import Client
from mallorn.core.errors import MallornError
from mallorn.core.values.event import MeasuredEvent


@dataclass
class Times:
    """Seconds by what was done, and what went wrong."""

    seconds: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    errors: list[str] = field(default_factory=list)
    _lock: Lock = field(default_factory=Lock)

    def timed(self, what: str, act: Callable[[], object]) -> None:
        """Do it, and keep how long it took."""
        began_sec = time.perf_counter()
        try:
            act()
        except MallornError as error:
            self.failed(what, error)
        else:
            self.took(what, time.perf_counter() - began_sec)

    def took(self, what: str, sec: float) -> None:
        with self._lock:
            self.seconds[what].append(sec)

    def failed(self, what: str, error: MallornError) -> None:
        with self._lock:
            self.errors.append(f"{what}: {error.message}")


def submit_all(url: str, model_id: str, target: str, jobs: int, at_once: int, times: Times) -> list[str]:
    """Jobs, a few at a time; their ids."""
    made: list[str] = []

    def submit(number: int) -> None:
        with Client(url) as api:
            times.timed(
                "submit", lambda: made.append(api.submit(model_id, target, 10**6, name=f"{number}").id)
            )

    with ThreadPoolExecutor(at_once) as pool:
        list(pool.map(submit, range(jobs)))
    return made


def watch(url: str, job_id: str, times: Times, over: Event) -> None:
    """Follow a job until all is over: how long after it was told an event arrives."""
    try:
        with Client(url) as api:
            for event in api.job(job_id).events():
                if over.is_set():
                    return
                if isinstance(told := event.parsed_event, MeasuredEvent) and told.best_us is not None:
                    times.took("event", time.time() - told.best_us)
    except MallornError as error:
        if not over.is_set():
            times.failed("event", error)


def visit(url: str, job_ids: list[str], times: Times, over: Event, seed: int, pause_sec: float) -> None:
    """What a page and a command line ask for, now and then."""
    random = Random(seed)
    with Client(url) as api:
        while not over.wait(random.expovariate(1 / pause_sec)):
            path = f"/jobs/{random.choice(job_ids)}"
            times.timed("list", partial(api.connection.get, "/jobs", limit=50))
            times.timed("show", partial(api.connection.get, path))
            times.timed("tasks", partial(api.connection.get, f"{path}/tasks"))


def begin(count: int, act: Callable[[int], None]) -> list[Thread]:
    """So many threads."""
    threads = [Thread(target=act, args=(number,), daemon=True) for number in range(count)]
    for thread in threads:
        thread.start()
    return threads
