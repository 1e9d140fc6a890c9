"""Grows a dataset on which to compare cost models: tasks of networks, and generated ones.

python -m benchmarks.grow MODEL.onnx ... --data DIR [--drawn 64] [--passes 4] [--trials 64] [--seed 0]

A pass measures this many new candidates of every task of every network: odd passes draw them
at random, even ones use the default searcher, so early and late rows of a task hold both
kinds. Each pass over a network is a job. The same command resumes an interrupted job and runs
missing ones; it may then ask for more. DIR keeps programs, traces and rows.
"""

import argparse
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from benchmarks.fresh import fresh_stack
from mallorn.cli.tune_and_resume import interrupt_on_signals
from mallorn.client.coordinator_client import Client
from mallorn.client.job import Job
from mallorn.core.errors import MallornError
from mallorn.core.states import JobState
from mallorn.core.targets import LOCAL
from mallorn_research.commands.record_measurements import MOST_TASKS, ROUND_SIZE, SEARCHERS
from mallorn_research.commands.wait_until_tuned import wait_for_device, wait_until_tuned
from mallorn_research.generate.task_rule_file import OURS, draw, network_name, read_rules
from mallorn_research.generate.tasks_as_onnx import DIMENSIONS, network, only_patterns

DRAWN_A_NETWORK: Final = 8
#: Jobs are cancelled after their rounds, since their finish is not needed.
MEASURED: Final = (JobState.DONE, JobState.CANCELLED)


@dataclass(frozen=True, slots=True)
class Network:
    """A model to measure, and name patterns of the tasks to tune; empty for all tasks."""

    file: Path
    only: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Pass:
    """One job: `trials` more candidates per task of a network; its name identifies it."""

    network: Network
    number: int  # from 1
    trials: int
    seed: int

    @property
    def name(self) -> str:
        return f"{self.network.file.stem} pass {self.number} trials {self.trials} seed {self.seed}"

    @property
    def search(self) -> str:
        return SEARCHERS[(self.number - 1) % len(SEARCHERS)]


def main() -> None:
    """Run all missing passes; print errors and how to resume."""
    try:
        grow(_arguments())
    except KeyboardInterrupt:
        sys.exit("broken off: the same command goes on")
    except MallornError as error:
        sys.exit(f"{error.message}\n{error.hint}")


def grow(options: argparse.Namespace) -> None:
    """Run every pass that no earlier run has completed."""
    options.data.mkdir(parents=True, exist_ok=True)
    generated = drawn_networks(options.data / "drawn", options.drawn, options.seed)
    networks = [Network(file.resolve(strict=True)) for file in options.models] + generated
    pending = list(passes(networks, options.passes, options.trials, options.seed))
    with interrupt_on_signals(), fresh_stack(options.data) as stack:
        wait_for_device(stack)
        jobs = by_name(stack.api.jobs())
        for done, each in enumerate(pending, 1):
            seconds = measure(stack.api, each, jobs.get(each.name))
            note = "measured before" if seconds is None else f"{each.search}, {seconds:.0f} s"
            print(f"{done} of {len(pending)}: {each.name}, {note}", flush=True)


def drawn_networks(folder: Path, count: int, seed: int) -> list[Network]:
    """Write generated tasks as networks of eight; the same seed gives the same files."""
    folder.mkdir(parents=True, exist_ok=True)
    tasks = draw(read_rules(OURS, DIMENSIONS), count, seed) if count else []
    networks = []
    for start in range(0, count, DRAWN_A_NETWORK):
        batch = tasks[start : start + DRAWN_A_NETWORK]
        file = folder / f"{network_name(seed, start // DRAWN_A_NETWORK)}.onnx"
        file.write_bytes(network(batch).SerializeToString(deterministic=True))
        networks.append(Network(file, tuple(only_patterns(batch))))
    return networks


def passes(networks: Sequence[Network], count: int, trials: int, seed: int) -> Iterator[Pass]:
    """Yield passes over all networks in turn, so that interrupted runs cover all alike."""
    for number in range(1, count + 1):
        for each in networks:
            yield Pass(each, number, trials, seed)


def by_name(newest_first: Iterable[Job]) -> dict[str, Job]:
    """Return the newest job of each name."""
    jobs: dict[str, Job] = {}
    for job in newest_first:
        jobs.setdefault(job.status.name, job)
    return jobs


def measure(api: Client, wanted: Pass, known: Job | None) -> float | None:
    """Run a pass and return its seconds, or None if an earlier run completed it.

    Resumes an open job. Raises NotTuned if the job fails.
    """
    started = time.monotonic()
    if known is not None and known.status.state in MEASURED:
        return None
    needs_job = known is None or known.status.state is JobState.FAILED
    job = submit(api, wanted) if known is None or needs_job else known
    wait_until_tuned(job, f"mallorn show {job.id}")
    return time.monotonic() - started


def submit(api: Client, wanted: Pass) -> Job:
    """Submit the job of a pass; it measures candidates that no earlier job measured."""
    return api.submit(
        api.upload(wanted.network.file).id,
        LOCAL,
        wanted.trials * MOST_TASKS,
        None,
        wanted.seed + wanted.number,
        wanted.name,
        search=wanted.search,
        task_trials=wanted.trials,
        policy="round-robin",
        round_size=ROUND_SIZE,
        stopping="fixed",  # all times get the same effort
        only=list(wanted.network.only),
    )


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("models", nargs="*", type=Path, metavar="MODEL.onnx")
    parser.add_argument("--data", type=Path, required=True, help="a data directory of its own")
    parser.add_argument("--drawn", type=int, default=64, help="tasks drawn near those of real networks")
    parser.add_argument("--passes", type=int, default=4)
    parser.add_argument("--trials", type=int, default=64, help="candidates of each task in a pass")
    parser.add_argument("--seed", type=int, default=0)
    return parser.parse_args()


if __name__ == "__main__":
    main()
