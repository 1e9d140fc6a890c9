"""A storm: kills at random moments of random processes, singly, in pairs and all at once, until its end.

On a Postgres of its own the database comes and goes, too.
"""

import os
import time
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any, Final

from benchmarks.postgres import Postgres
from benchmarks.storm.history import History
from benchmarks.storm.stack import WHOLE, Stack
from mallorn.core.errors import Unavailable
from mallorn.core.states import JobState

WHOLE_SHARE: Final = 0.12  # of all blows: everything at once
PAIR_SHARE: Final = 0.25
LOOK_SEC: Final = 0.5
TWINS: Final = ("control",)
ROUND_ROBIN: Final = "round-robin"  # spends the whole budget, whatever it expects of it


@dataclass(frozen=True, slots=True)
class Weather:
    """How hard it blows, and on what."""

    seed: int
    candidates: int  # of jobs whose measurer is made up
    jobs: int
    real: int  # candidates of one job that is built and timed
    pause_sec: float  # between two blows, on average
    storm_sec: float  # then it is calm, and all jobs end
    calm_sec: float  # who has not ended by then does not end
    restart_sec: tuple[float, float] | None = None  # on a Postgres of its own: from one restart to the next
    twins: bool = False  # a second control
    device_sec: float = 0.05  # of a made-up candidate: with longer ones, workers do more rounds at a time
    kills: bool = True


@dataclass(slots=True)
class Damage:
    """What came of it."""

    kills: dict[str, int] = field(default_factory=dict)
    blows: int = 0
    database_restarts: int = 0
    restarts: int = 0  # of the whole stack, which ended by itself or was killed
    trials: int = 0
    most_rounds: int = 0  # that workers held at a time
    lost: int = 0
    doubled: int = 0
    failed: dict[str, str] = field(default_factory=dict)  # jobs, and why
    unended: list[str] = field(default_factory=list)
    recovered_sec: list[float] = field(default_factory=list)
    left_processes: int = 0  # after the next start
    left_files: list[str] = field(default_factory=list)

    @property
    def headline(self) -> int:
        return self.lost + self.doubled + len(self.failed) + len(self.unended)


def storm(weather: Weather, model: Path, folder: Path) -> Damage:
    """Blow at a stack that works at jobs of a model, and look what is left of them."""
    damage = Damage()
    with ExitStack() as over:
        postgres = over.enter_context(Postgres()) if weather.restart_sec else None
        stack = Stack(folder, workers=2, database_url=postgres.url if postgres else None)
        over.callback(stack.stop)
        stack.start()
        if weather.twins:
            stack.double(TWINS)
        history = History(stack.data, stack.database_url, _submit(stack, weather, model))
        over.callback(history.close)
        _blow(stack, postgres, history, weather, damage)
        stack.undouble()
        _look_back(stack, history, damage)
    return damage


def _submit(stack: Stack, weather: Weather, model: Path) -> dict[str, int]:
    """The jobs, and how many trials each asked for."""
    share = weather.candidates // weather.jobs
    with stack.client() as client:
        while not client.devices():  # the target `local` is what a device of this host says
            time.sleep(LOOK_SEC)
        jobs = {}
        for seed in range(weather.jobs):
            # Of devices that answer differently each, so that none finds its candidates measured by another.
            pretends: Any = {"seed": seed, "device_sec": weather.device_sec}
            job = client.submit(
                model, trials=share, seed=seed, policy=ROUND_ROBIN, measurer="simulated", simulated=pretends
            )
            jobs[job.id] = share
        if weather.real:
            jobs[client.submit(model, trials=weather.real, policy=ROUND_ROBIN).id] = weather.real
    return jobs


def _blow(
    stack: Stack, postgres: Postgres | None, history: History, weather: Weather, damage: Damage
) -> None:
    rng, began_sec = Random(weather.seed), time.monotonic()
    strike_sec = began_sec + rng.expovariate(1 / weather.pause_sec)
    between_sec = weather.restart_sec or (0.0, 0.0)
    restart_sec = began_sec + rng.uniform(*between_sec)
    while not _over(history):
        now_sec = time.monotonic()
        if now_sec > began_sec + weather.storm_sec + weather.calm_sec:
            return
        storms = now_sec < began_sec + weather.storm_sec
        if storms and weather.kills and strike_sec < now_sec:
            _strike(stack, history, rng, damage)
            strike_sec = now_sec + rng.expovariate(1 / weather.pause_sec)
        if storms and postgres is not None and restart_sec < now_sec:
            postgres.restart(rng.choice(("fast", "immediate")))
            damage.database_restarts += 1
            restart_sec = time.monotonic() + rng.uniform(*between_sec)
        if not stack.running:
            damage.restarts += 1
            stack.start()
        time.sleep(LOOK_SEC)


def _over(history: History) -> bool:
    """Look, and say whether all jobs ended; nobody knows while the database is away."""
    with suppress(Unavailable):
        history.look()
        return history.all_ended()
    return False


def _strike(stack: Stack, history: History, rng: Random, damage: Damage) -> None:
    """One blow: everything, a pair, or one."""
    kinds = sorted(stack.parts())
    if not kinds:  # it ended by itself
        return
    damage.blows += 1
    drawn = rng.random()
    count = 2 if drawn < WHOLE_SHARE + PAIR_SHARE and len(kinds) > 1 else 1
    victims = [WHOLE] if drawn < WHOLE_SHARE else rng.sample(kinds, count)
    for kind in victims:
        try:
            pids = stack.kill(kind, rng)
        except (IndexError, KeyError):  # it ended by itself meanwhile
            continue
        damage.kills[kind] = damage.kills.get(kind, 0) + 1
        with suppress(Unavailable):
            history.struck(pids)


def _look_back(stack: Stack, history: History, damage: Damage) -> None:
    """Count, and see what a last kill of everything leaves after the next start."""
    history.look()
    damage.trials, damage.recovered_sec = len(history.trials()), sorted(history.recovered_sec)
    damage.lost, damage.doubled, damage.most_rounds = history.lost(), history.doubled(), history.most_rounds
    for job_id, (state, reason) in history.states().items():
        if state is JobState.FAILED:
            damage.failed[job_id] = reason
        elif state is not JobState.DONE:
            damage.unended.append(job_id)
    before = stack.files()
    stack.kill(WHOLE, Random(0))
    stack.start()
    damage.left_processes = len(stack.strangers())
    kept = f"mallorn-{os.getuid()}-"  # the directory of the broker's socket, whose name is that of the data
    damage.left_files = sorted(name for name in before & stack.files() if not name.startswith(kept))


def told(weather: Weather, damage: Damage) -> list[str]:
    """What happened, in lines; the headline last."""
    kills = ", ".join(f"{count} {kind}" for kind, count in sorted(damage.kills.items()))
    again = damage.recovered_sec or [0.0]
    restarts = [f"the database was restarted {damage.database_restarts} times"] if weather.restart_sec else []
    return [
        f"{damage.blows} blows in {weather.storm_sec:.0f} s: {kills or 'none'}",
        *restarts,
        f"{damage.trials} trials, {damage.lost} lost, {damage.doubled} doubled",
        f"at most {damage.most_rounds} rounds at a time",
        f"{len(damage.failed)} jobs failed, {len(damage.unended)} did not end",
        f"{len(damage.recovered_sec)} rounds of dead workers ran again after at most {again[-1]:.0f} s",
        f"left after the next start: {damage.left_processes} processes, {len(damage.left_files)} files",
        f"lost, doubled, failed or not ended: {damage.headline}",
    ]
