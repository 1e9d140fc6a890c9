"""An analytic first guess: how far below the roofline a candidate's tiles keep a CPU."""

from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from costmodels.base import FAILED_LABEL, CostModel, Matrix, Prediction, Vector
from costmodels.blobs import pack, unpack
from costmodels.checks import check_rows
from costmodels.columns import WIDTH, Column, Tiling, tiling
from costmodels.training import timed

KIND = "draft"
FIRST_SPREAD: Final = 1.0  # log units, until measurements say how far the guesses are off
FEWEST_ROWS: Final = 8


class Cpu(NamedTuple):
    """A CPU core and the number of cores; the defaults suit recent servers."""

    cores: float = 8
    lanes: float = 16  # float32 values in a vector
    registers: float = 28  # vectors that can accumulate
    in_flight: float = 8  # vector operations that keep the units busy
    flops_per_cycle: float = 64
    l1_bytes: float = 32 * 1024
    l2_bytes: float = 1024 * 1024
    l2_bytes_per_cycle: float = 32
    memory_bytes_per_cycle: float = 4
    loop_cycles: float = 2
    task_cycles: float = 2000  # to hand a piece of work to a core
    body_limit: float = 1024  # unrolled vector operations that still fit the instruction cache


class Draft(CostModel):
    """Scores tiles by a formula of device constants, before anything was measured.

    Time is the largest of computing, reading the second cache and reading memory, times penalties for idle
    lanes, idle cores, waiting or spilled accumulators and short loops. Every sketch is treated as a blocked
    reduction on a CPU. Fitting only estimates the error of the formula.
    """

    def __init__(self, device: Cpu | None = None) -> None:
        self._device = device or Cpu()
        self._spread = FIRST_SPREAD

    def fit(self, features: Matrix, labels: Vector, groups: NDArray[np.int64], *, seed: int) -> None:
        check_rows(features, labels, groups)
        del seed
        ran = timed(labels)
        error = self.predict(features[ran]).mean - labels[ran]
        known = len(error) >= FEWEST_ROWS
        self._spread = float(max(np.sqrt(np.mean(error**2)), 1e-3)) if known else FIRST_SPREAD

    def predict(self, features: Matrix) -> Prediction:
        """All rows score alike if they are not laid out as the workers' features."""
        spread = np.full(len(features), self._spread, dtype=np.float32)
        if features.shape[1] != WIDTH:
            return Prediction(np.zeros(len(features), dtype=np.float32), spread)
        with np.errstate(over="ignore", invalid="ignore"):  # tiles larger than any program's
            score = -np.log(_slowdown(tiling(features), self._device))
        score = np.nan_to_num(score, nan=FAILED_LABEL)
        return Prediction(np.clip(score, FAILED_LABEL, 0.0).astype(np.float32), spread)

    def save(self) -> bytes:
        return pack(KIND, {"device": self._device._asdict(), "spread": self._spread}, {})

    @classmethod
    def load(cls, blob: bytes) -> "Draft":
        numbers, _ = unpack(KIND, blob)
        model = cls(Cpu(**numbers["device"]))
        model._spread = numbers["spread"]
        return model


def _slowdown(tiles: Tiling, device: Cpu) -> Column:
    """Estimated time over the least time for that many operations."""
    bytes_a_flop = device.l2_bytes_per_cycle / device.flops_per_cycle
    memory = device.memory_bytes_per_cycle / device.flops_per_cycle
    inner, middle, outer = (_block(tiles, depth) for depth in (1, 2, 3))
    fits_l1, fits_l2 = middle.footprint <= device.l1_bytes, outer.footprint <= device.l2_bytes
    from_l2 = np.where(fits_l1, middle.traffic, inner.traffic) / bytes_a_flop
    from_memory = np.where(fits_l2, outer.traffic, middle.traffic) / memory
    core = _core(tiles, inner, device)
    return np.asarray(np.maximum(core, np.maximum(from_l2, from_memory)) * _parallel(tiles, device))


class _Block(NamedTuple):
    """The innermost levels as one block: points across, along the last axis, and in depth."""

    across: Column
    along: Column
    depth: Column

    @property
    def footprint(self) -> Column:
        """Bytes of its two operands and its result."""
        return 4 * (self.across * self.depth + self.along * self.depth + self.across * self.along)

    @property
    def traffic(self) -> Column:
        """Bytes read and written per operation if the block's data stays in the cache."""
        return 2 / self.across + 2 / self.along + 4 / self.depth


def _block(tiles: Tiling, levels: int) -> _Block:
    """Reductions run outside the innermost spatial level, so their levels lie one further out."""
    inner = tiles.spatial[:, :, -levels:].prod(axis=2)
    depth = tiles.reduction[:, :, -max(1, levels - 1) :].prod(axis=(1, 2))
    return _Block(inner[:, :-1].prod(axis=1), inner[:, -1], depth)


def _core(tiles: Tiling, inner: _Block, device: Cpu) -> Column:
    """The cost of the innermost body on one core, relative to the least possible."""
    vectors = np.ceil(inner.along / device.lanes)
    accumulators = inner.across * vectors
    idle_lanes = vectors * device.lanes / inner.along
    waiting = np.maximum(1, device.in_flight / accumulators)
    spilling = 1 + np.log2(np.maximum(1, accumulators / device.registers)) / 2
    loads = np.maximum(1, 1 / inner.across + 1 / vectors)
    keeping = 1 + 1 / inner.depth
    body = accumulators * inner.depth
    looping = np.where(inner.along * inner.across * inner.depth <= tiles.unroll, 0, device.loop_cycles)
    too_long = 1 + np.log2(np.maximum(1, np.minimum(body, tiles.unroll) / device.body_limit)) / 4
    busy = np.maximum(waiting, loads) * spilling * keeping
    return np.asarray(idle_lanes * busy * (1 + looping / body) * too_long)


def _parallel(tiles: Tiling, device: Cpu) -> Column:
    """The cost of cores that idle at the end, and of handing out small pieces."""
    pieces = tiles.spatial[:, :, :2].prod(axis=(1, 2))
    operations = 2 * tiles.spatial.prod(axis=(1, 2)) * tiles.reduction.prod(axis=(1, 2))
    least_cycles = operations / device.flops_per_cycle / device.cores
    balance = np.ceil(pieces / device.cores) * device.cores / pieces
    return np.asarray(balance + pieces * device.task_cycles / device.cores / least_cycles)
