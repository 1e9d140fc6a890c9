"""Simulates a device without a compiler, hardware or TVM, to rehearse large fleets."""

import os
import socket
from collections.abc import Generator, Mapping, Sequence
from dataclasses import replace
from hashlib import sha256
from math import log, prod
from typing import Final

from mallorn.core.errors import MallornError
from mallorn.core.job_options import JobOptions
from mallorn.core.outcomes import Outcome
from mallorn.core.targets import Target
from mallorn.core.values.trial import Trial
from mallorn.searchers.space import ChoiceKind
from mallorn.workers.device.device_class import Endpoint
from mallorn.workers.measure.measurer_interface import (
    MeasureInput,
    Measurer,
    MeasureResult,
    Need,
    Program,
    VirtualDevice,
)
from mallorn.workers.measure.run_timeout_and_retakes import count_operations
from mallorn.workers.process.lease_renewal import sleep_while_leased

NAME: Final = "simulated"
LEAST_US: Final = 1.0
OPS_PER_US: Final = 10_000.0  # per core
SPREAD: Final = 20.0
FAILURE: Final = "made up, as simulated.failure_rate asks for"


class SimulatedMeasurer(Measurer):
    """Computes times from a formula, equal in every process and on every host.

    u(...) is a number in [0, 1) that depends only on `seed` and the arguments in brackets.
    The time of a candidate in microseconds is

        floor * (1 + u(program, sketch)) * SPREAD ** d

    where floor is LEAST_US plus the time for the program's operations
    (`run_timeout_and_retakes.work`) at OPS_PER_US per core of the target. d is the mean
    over all choices of these distances:

    - a tile: half the sum over its factors of |share - favourite|. A factor's share is its logarithm
      divided by that of the loop's extent; its favourite is u(program, sketch, choice, factor) over
      the sum of these for all factors;
    - a listed value: u(program, sketch, choice, value).

    A candidate with u(program, candidate) below `failure_rate` always fails to run. Each
    candidate occupies its device for `device_sec`, while the worker sleeps.
    """

    virtual_device = NAME

    def measure(
        self,
        program: Program,
        target: Target,
        inputs: Sequence[MeasureInput],
        options: JobOptions,
        best_us: float | None = None,
    ) -> Generator[MeasureResult, None, None]:
        endpoint = _endpoint(target)
        for entry in inputs:
            sleep_while_leased(options.simulated.device_sec)
            yield simulate_run(program, target, entry, options, endpoint)

    def virtual_device_for(
        self, tasks: Mapping[str, str], target: Target, options: JobOptions
    ) -> VirtualDevice:
        return VirtualDevice(_endpoint(target))

    def require(self, need: Need) -> bool:
        raise MallornError("simulated times come from a formula: no model can run", hint="mallorn tune MODEL")


def latency_us(program: Program, target: Target, entry: MeasureInput, seed: int) -> float:
    """Return the time of a candidate by the formula of SimulatedMeasurer."""
    floor_us = LEAST_US + count_operations(program) / OPS_PER_US / target.num_cores
    sketch = f"{seed}/{program.key}/{entry.sketch.key}"
    distances: list[float] = []
    for place, (columns, choice) in enumerate(entry.sketch.decision_slices):
        factors, name = entry.candidate.decisions[columns], f"{sketch}/{place}"
        if choice.kind is not ChoiceKind.TILE:
            distances.append(_hash_to_fraction(f"{name}/{factors[0]}"))
        elif (log_extent := log(prod(factors))) == 0:
            distances.append(0.0)
        else:
            favourites = [_hash_to_fraction(f"{name}/{number}") for number in range(len(factors))]
            shares = zip((log(factor) / log_extent for factor in factors), favourites, strict=True)
            distances.append(sum(abs(share - favourite / sum(favourites)) for share, favourite in shares) / 2)
    mean = sum(distances) / len(distances) if distances else 0.0
    return float(floor_us * (1 + _hash_to_fraction(sketch)) * SPREAD**mean)


def _hash_to_fraction(name: str) -> float:
    return int.from_bytes(sha256(name.encode()).digest()[:6]) / 2**48


def simulate_run(
    program: Program, target: Target, entry: MeasureInput, options: JobOptions, endpoint: Endpoint
) -> MeasureResult:
    """Return a candidate's result by the formula of SimulatedMeasurer."""
    simulation = options.simulated
    name = f"{simulation.seed}/{program.key}/{entry.candidate.key}"
    trial = Trial(entry.candidate, Outcome.OK, build_ms=0.0, run_ms=simulation.device_sec * 1e3)
    if _hash_to_fraction(name) < simulation.failure_rate:
        trial = replace(trial, outcome=Outcome.RUN_ERROR, error=FAILURE)
    else:
        trial = replace(trial, run_us=(latency_us(program, target, entry, simulation.seed),))
    return MeasureResult(entry.slot, trial, endpoint)


def _endpoint(target: Target) -> Endpoint:
    """Return this process's simulated device; no real device has its class."""
    name = f"{NAME}-{target.key}-{socket.gethostname()}-{os.getpid()}"
    return Endpoint(name, host_id=NAME, host_class=NAME, threads=target.num_cores, tvm_version="none")
