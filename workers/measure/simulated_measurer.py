"""A made-up device: no compiler, no device, no TVM in the process, so that large fleets can be rehearsed."""

import os
import socket
import time
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
from searchers.space import ChoiceKind
from workers.device.device_class import Endpoint
from workers.measure.base import MeasureInput, Measurer, MeasureResult, Need, Program, VirtualDevice
from workers.measure.run_timeout_and_retakes import work
from workers.subprocesses.shutdown import STOP

NAME: Final = "simulated"
LEAST_US: Final = 1.0
OPS_PER_US: Final = 10_000.0  # of one core
SPREAD: Final = 20.0
FAILURE: Final = "made up, as simulated.failure_rate asks for"
LOOK_SEC: Final = 0.2  # so soon a worker that shall stop does


class SimulatedMeasurer(Measurer):
    """Answers from a formula, alike in every process and on every host.

    u(...) is a number from 0 to below 1 that `seed` and what stands in the brackets decide. A candidate takes

        floor * (1 + u(program, sketch)) * SPREAD ** d

    where floor is LEAST_US, and what the program computes (`work` of run_timeout_and_retakes) at OPS_PER_US
    on each core of the target. d is the mean over the choices of how far each is from the seed's favourite:

    - a tile: half the sum over its factors of |share - favourite|. A factor's share is its logarithm over
      that of their product, the favourite u(program, sketch, choice, factor) over the sum for all factors;
    - a listed value: u(program, sketch, choice, value).

    A candidate whose u(program, candidate) is below `failure_rate` fails to run whenever it is tried. Each
    keeps its device for `device_sec`, in which the worker sleeps. A slot has one device, and takes no core.
    """

    stands_in = NAME

    def measure(
        self,
        program: Program,
        target: Target,
        slots: Sequence[MeasureInput],
        options: JobOptions,
        best_us: float | None = None,
    ) -> Generator[MeasureResult, None, None]:
        endpoint = _endpoint(target)
        for slot in slots:
            until_sec = time.monotonic() + options.simulated.device_sec
            while (left_sec := until_sec - time.monotonic()) > 0:
                STOP.check()
                time.sleep(min(left_sec, LOOK_SEC))
            yield _result(program, target, slot, options, endpoint)

    def compare(
        self,
        program: Program,
        target: Target,
        slots: Sequence[MeasureInput],
        options: JobOptions,
        passes: int,
    ) -> list[MeasureResult]:
        """The same in every pass: nothing disturbs this device."""
        return [result for _ in range(passes) for result in self.measure(program, target, slots, options)]

    def stand_in(self, tasks: Mapping[str, str], target: Target, options: JobOptions) -> VirtualDevice:
        return VirtualDevice(_endpoint(target))

    def require(self, need: Need) -> bool:
        raise MallornError("the times are made up", hint="mallorn tune MODEL")


def latency_us(program: Program, target: Target, slot: MeasureInput, seed: int) -> float:
    """The formula of SimulatedMeasurer."""
    floor_us = LEAST_US + work(program) / OPS_PER_US / target.num_cores
    sketch = f"{seed}/{program.key}/{slot.sketch.key}"
    distances: list[float] = []
    for place, (columns, choice) in enumerate(slot.sketch.places):
        part, name = slot.candidate.decisions[columns], f"{sketch}/{place}"
        is_tile = choice.kind is ChoiceKind.TILE
        distances.append(_from_favourite(name, part) if is_tile else _number(f"{name}/{part[0]}"))
    mean = sum(distances) / len(distances) if distances else 0.0
    return float(floor_us * (1 + _number(sketch)) * SPREAD**mean)


def _from_favourite(name: str, factors: Sequence[int]) -> float:
    """Half the distance of a tile's shares from the favourite's; a loop of one step has no choice."""
    if (whole := log(prod(factors))) == 0:
        return 0.0
    wanted = [_number(f"{name}/{factor}") for factor in range(len(factors))]
    shares = zip((log(factor) / whole for factor in factors), wanted, strict=True)
    return sum(abs(share - favourite / sum(wanted)) for share, favourite in shares) / 2


def _number(name: str) -> float:
    """From 0 to below 1, spread evenly over names."""
    return int.from_bytes(sha256(name.encode()).digest()[:6]) / 2**48


def _result(
    program: Program, target: Target, slot: MeasureInput, options: JobOptions, endpoint: Endpoint
) -> MeasureResult:
    pretends = options.simulated
    name = f"{pretends.seed}/{program.key}/{slot.candidate.key}"
    trial = Trial(slot.candidate, Outcome.OK, build_ms=0.0, run_ms=pretends.device_sec * 1e3)
    if _number(name) < pretends.failure_rate:
        trial = replace(trial, outcome=Outcome.RUN_ERROR, error=FAILURE)
    else:
        trial = replace(trial, run_us=(latency_us(program, target, slot, pretends.seed),))
    return MeasureResult(slot.slot, trial, endpoint)


def _endpoint(target: Target) -> Endpoint:
    """A device of this process's own, of a class that no real one has."""
    name = f"{NAME}-{target.key}-{socket.gethostname()}-{os.getpid()}"
    return Endpoint(name, host_id=NAME, host_class=NAME, threads=target.num_cores, tvm_version="none")
