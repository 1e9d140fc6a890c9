"""Ranks the candidates of a program by estimated time, in the order in which to try them."""

from collections.abc import Sequence
from functools import lru_cache
from itertools import islice, pairwise, product
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from mallorn.core.registry import locations, resolve
from mallorn.core.values.machine import Machine
from mallorn.costmodels.base import Column, Indices
from mallorn.searchers.decision_features import decision_rows
from mallorn.searchers.loop_nest import Nest, is_read_across_rows
from mallorn.searchers.roller.cpu_time_model import (
    Loops,
    block_us,
    computing_us,
    input_computing_us,
    moving_us,
    register_cost,
    result_us,
)
from mallorn.searchers.sketch_blocks import Block, PlacedChoice, blocks, consumer_depth, placed_choices
from mallorn.searchers.space import Candidate, ChoiceKind, Sketch, Space
from mallorn.searchers.tile_factorizations import Rows, divisors, largest_factor

Table = NDArray[np.int64]

MOST_CHUNKS: Final = 16  # chunks per core; MetaSchedule does not parallelise more
# Largest rows of a register tile, repetitions of that tile, and steps of its reduction.
_MOST_ROWS, _MOST_AGAIN, _DEEPEST = 16, 16, 64
_WIDEST: Final = 64  # elements that MetaSchedule vectorises at once
_OVERFULL: Final = 1.2  # accumulators relative to registers: a few spills may be acceptable
_KEPT, _MOST_BUILT = 96, 6_000
_MOST_TILES: Final = 256  # tiles of a block that are combined with every other choice
_MOST_ON_GPU: Final = 24  # tiles per sketch of a GPU
_VERSIONS: Final = 3  # versions of tiles tried for sketches without a time model
_TENSORIZED: Final = "meta_schedule.auto_tensorize"
_USUAL_UNROLL: Final = 64.0
FIXED_US: Final = 1e8  # placeholder for a sketch without choices on a GPU, see `rank_candidates`
_STOCK, _UNKNOWN_KIND = "MetaSchedule", "other"  # names of models of sketches that name no known kind
_UNKNOWN_US: Final = 1e9  # for sketches without a time model, whose guesses keep their order


def sketch_time_model(sketch: Sketch, nests: Sequence[Nest], machine: Machine) -> Any:
    """Return the `SketchModel` of a sketch of ours or MetaSchedule's; None if it has none."""
    kind = str(sketch.facts.get("kind", _STOCK))
    name = kind if kind in locations("sketch_time") else _UNKNOWN_KIND
    return resolve("sketch_time", name)(sketch, nests, machine)


def build_tiles(nest: Nest, machine: Machine, limits: Sequence[int], unroll: float) -> Rows:
    """Return good tiles as rows of factors: of the spatial axes, then of the reductions.
    `limits` bound each axis's innermost factor."""
    spatial_count = sum(not axis.reduced for axis in nest.axes)
    inner = _register_tiles(nest, machine, limits, spatial_count)
    time = computing_us(Loops(nest, inner), machine, unroll)
    parts = []
    for row in inner[np.argsort(time, kind="stable")[:_KEPT]]:
        # Split the outer loops into chunks for the cores, in all ways that keep them busy.
        outer = [int(row[4 * axis + 1]) for axis in range(spatial_count)]
        cuts = _combinations([_single_factors(extent, extent) for extent in outer])[:, :, 0]
        chunks = cuts.prod(axis=1)
        is_balanced = (chunks <= MOST_CHUNKS * machine.cores) & (chunks >= min(machine.cores, chunks.max()))
        cuts = cuts[is_balanced] if is_balanced.any() else cuts[[chunks.argmin()]]
        split_rows = np.repeat(row[None], len(cuts), axis=0)
        split_rows[:, 0 : 4 * spatial_count : 4] = cuts
        split_rows[:, 1 : 4 * spatial_count : 4] = np.array(outer) // cuts
        parts.append(split_rows)
    rows = np.concatenate(parts)
    return rows if len(rows) <= _MOST_BUILT else rows[:: -(-len(rows) // _MOST_BUILT)]


def _register_tiles(nest: Nest, machine: Machine, limits: Sequence[int], spatial_count: int) -> Rows:
    spatial, reductions = nest.extents[:spatial_count], nest.extents[spatial_count:]

    # Per spatial axis: repetitions in the next outer level, and the innermost factor.
    options = []
    for extent, limit in zip(spatial[:-1], limits, strict=False):
        factors = [factor for factor in divisors(extent) if factor <= min(limit, _MOST_ROWS)]
        options.append(_repetition_factors(extent, factors, _MOST_AGAIN))
    # The last axis is vectorised: few wasted lanes, or half a vector.
    limit = min(limits[spatial_count - 1], _WIDEST)
    widths = np.array([factor for factor in divisors(spatial[-1]) if factor <= limit])
    waste = np.ceil(widths / machine.lanes) * machine.lanes / widths
    good_widths = widths[(waste <= 1.5 * waste.min()) | (2 * widths == machine.lanes)]
    options.append(_repetition_factors(spatial[-1], good_widths.tolist(), 4))
    across = _combinations(options)

    # Accumulators fit registers, repetitions are few, and at most two axes have rows.
    width = across[:, -1, 1].astype(np.float64)
    sums = across[:, :-1, 1].prod(axis=1) * register_cost(width, machine.lanes)
    repeats = across[:, :, 0].prod(axis=1)
    row_axes = (across[:, :-1].prod(axis=2) > 1).sum(axis=1)
    is_small = (sums <= _OVERFULL * machine.registers) & (repeats <= _MOST_AGAIN) & (row_axes <= 2)
    # An axis without small factors leaves none that fit: the least that spills is the best then.
    across = across[is_small if is_small.any() else sums == sums.min()]
    depth_limits = zip(reductions, limits[spatial_count:], strict=True)
    depth = _combinations([_single_factors(extent, limit) for extent, limit in depth_limits])
    depth = depth[depth.prod(axis=(1, 2)) <= _DEEPEST]

    # Every combination of register tile and depth, as rows of factors of all levels.
    pairs, steps = (grid.ravel() for grid in np.indices((len(across), len(depth))))
    columns: list[Table] = []
    for axis, extent in enumerate(spatial):
        repetitions, inner = across[pairs, axis].T
        columns += [np.ones_like(inner), extent // (repetitions * inner), repetitions, inner]
    for axis, extent in enumerate(reductions):
        inner = depth[steps, axis, 0]
        columns += [extent // inner, inner]
    return np.stack(columns, axis=1).astype(np.int32)


def _repetition_factors(extent: int, factors: Sequence[int], limit: int) -> Table:
    """Return pairs: a factor, after how often the next outer level repeats it."""
    return np.array([(times, f) for f in factors for times in divisors(extent // f) if times <= limit])


def _combinations(options: Sequence[Table]) -> Table:
    if not options:
        return np.ones((1, 0, 1), dtype=np.int64)
    grid = np.indices([len(table) for table in options]).reshape(len(options), -1)
    return np.stack([table[index] for table, index in zip(options, grid, strict=True)], axis=1)


def _single_factors(extent: int, limit: int) -> Table:
    return np.array([(factor,) for factor in divisors(extent) if factor <= limit])


def split_each_reduction(block: Block, machine: Machine) -> list[list[int]]:
    """Return a tile (its factors) per axis of a block; innermost factors fill vectors."""
    tiles = []
    for place in block.tile_choices:
        inner = largest_factor(place.choice.extent, 2 * machine.lanes)
        tiles.append([place.choice.extent // inner, *[1] * (place.choice.width - 2), inner])
    return tiles


class Guesses(NamedTuple):
    """Promising decision vectors of a sketch, with estimated times. `aspects` number their
    properties, so that similar vectors can be recognised."""

    rows: Rows
    us: Column
    aspects: Indices


class Tiled:
    """Tiles of a block, with the estimated times of computing and of moving data."""

    def __init__(self, block: Block, nest: Nest, tiles: Rows, machine: Machine) -> None:
        self.tiles = tiles
        self.loops = Loops(nest, tiles)
        self.moving = moving_us(self.loops, machine)
        # Number each row's chunks, repetitions, register tile, depth and vector width.
        starts = np.array([columns.start for columns in _columns(block)])
        spatial, reductions = starts[: len(block.spatial)], starts[len(block.spatial) :]
        places = spatial, spatial + 2, spatial + 3, reductions + 1, spatial[-1:] + 3
        groups = [tiles[:, columns] for columns in places]
        group_numbers = [np.unique(group, axis=0, return_inverse=True)[1].reshape(-1) for group in groups]
        self.aspects = np.column_stack(group_numbers).astype(np.int64)
        self._machine = machine
        self._working: dict[float, Column] = {}

    def computing_time_us(self, unroll: Column) -> Column:
        guesses = np.zeros(len(unroll))
        for value in np.unique(unroll).tolist():
            if value not in self._working:
                self._working[value] = computing_us(self.loops, self._machine, value)
            guesses = np.where(unroll == value, self._working[value], guesses)
        return guesses


class Constructor:
    """Finds good decision vectors of a program's sketches; caches good tiles of blocks."""

    def __init__(self, nests: Sequence[Nest], machine: Machine) -> None:
        self._nests, self._machine = nests, machine
        self._tiled: dict[Block, Tiled] = {}

    def guesses(self, sketch: Sketch) -> Guesses:
        """Return decision vectors that are worth trying, with estimated times."""
        if self._machine.gpu:
            model = sketch_time_model(sketch, self._nests, self._machine)
            if model is not None:
                rows, us = model.best(_MOST_ON_GPU)
                return Guesses(rows, us, rows.astype(np.int64))
            plain = self._guess_without_time_model(sketch, blocks(sketch))
            return plain if sketch.choices else plain._replace(us=np.full_like(plain.us, FIXED_US))
        of_sketch = blocks(sketch)
        if len(of_sketch) == 1 and of_sketch[0].is_tiled:
            return self._guess_tiles(sketch, of_sketch[0], _machine_of(sketch, self._machine))
        return self._guess_without_time_model(sketch, of_sketch)

    def time_us(self, sketch: Sketch, rows: Rows) -> Column | None:
        """Return the estimated time of each row; None if there is no model of the sketch."""
        if self._machine.gpu:
            model = sketch_time_model(sketch, self._nests, self._machine)
            return None if model is None else model.time_us(rows)
        of_sketch, machine = blocks(sketch), _machine_of(sketch, self._machine)
        if len(of_sketch) != 1 or not of_sketch[0].is_tiled:
            return None
        (block,) = of_sketch
        tiles = np.hstack([rows[:, place.columns] for place in block.tile_choices])
        return self._time_us(sketch, rows, Tiled(block, block.nest(self._nests), tiles, machine), machine)

    def find_best_tiles(self, block: Block, machine: Machine) -> Tiled:
        if block not in self._tiled:
            limits = [place.choice.limit or place.choice.extent for place in block.tile_choices]
            nest = block.nest(self._nests)
            tiles = build_tiles(nest, machine, limits, _USUAL_UNROLL)
            loops = Loops(nest, tiles)
            moving = moving_us(loops, machine)
            time = block_us(computing_us(loops, machine, _USUAL_UNROLL), moving, loops, machine)
            best = np.argsort(time, kind="stable")[:_MOST_TILES]
            self._tiled[block] = Tiled(block, nest, tiles[best], machine)
        return self._tiled[block]

    def _guess_tiles(self, sketch: Sketch, block: Block, machine: Machine) -> Guesses:
        tiled = self.find_best_tiles(block, machine)
        other_choices = _non_tile_choices(sketch, len(block.spatial))
        guesses: list[Guesses] = []
        for values in product(*(values for _, values in other_choices)):
            rows = _suggested_rows(sketch, len(tiled.tiles))
            for place, value in zip([place for place, _ in other_choices], values, strict=True):
                rows[:, place.start] = value
            for place, columns in zip(block.tile_choices, _columns(block), strict=True):
                rows[:, place.columns] = tiled.tiles[:, columns]
            us = self._time_us(sketch, rows, tiled, machine)
            other_aspects = np.tile(np.array(values, dtype=np.int64), (len(rows), 1))
            guesses.append(Guesses(rows, us, np.hstack([tiled.aspects, other_aspects])))
        return Guesses(*map(np.concatenate, zip(*guesses, strict=True)))

    def _time_us(self, sketch: Sketch, rows: Rows, tiled: Tiled, machine: Machine) -> Column:
        loops, unroll, feeding = tiled.loops, np.zeros(len(rows)), np.zeros(len(rows))
        for place in placed_choices(sketch):
            values = rows[:, place.start]
            if place.choice.kind is ChoiceKind.CATEGORICAL:
                unroll = np.maximum(unroll, np.array(place.choice.labels or place.choice.values)[values])
            elif place.choice.kind is ChoiceKind.LOCATION:
                for value in np.unique(values).tolist():
                    feeding += np.where(values == value, input_computing_us(loops, machine, value), 0.0)
        result = result_us(
            loops, machine, consumer_depth(sketch), is_read_across_rows(loops.nest, self._nests)
        )
        movements = np.vstack([tiled.moving, result])
        return block_us(tiled.computing_time_us(unroll), movements, loops, machine) + feeding

    def _guess_without_time_model(self, sketch: Sketch, sketch_blocks: Sequence[Block]) -> Guesses:
        """Return combinations of choices of a sketch without a time model, usual values
        first, with a few versions of tiles. The times only express this order."""
        other_choices = _non_tile_choices(
            sketch, len(sketch_blocks[0].spatial) if sketch_blocks and sketch_blocks[0].is_tiled else 1
        )
        versions: list[list[tuple[PlacedChoice, list[int]]]] = []
        for version in range(_VERSIONS):
            placed_tiles: list[tuple[PlacedChoice, list[int]]] = []
            for block in sketch_blocks:
                if block.is_tiled:
                    best = self.find_best_tiles(block, _machine_of(sketch, self._machine)).tiles
                    row_of_version = best[min(version, len(best) - 1)]
                    block_tiles = [row_of_version[columns].tolist() for columns in _columns(block)]
                else:
                    block_tiles = split_each_reduction(block, self._machine)
                placed_tiles += zip(block.tile_choices, block_tiles, strict=True)
            versions.append(placed_tiles)
        # A ranking looks at fewer; attention has millions of combinations.
        pairs = [*islice(product(product(*(values for _, values in other_choices)), versions), _MOST_BUILT)]
        rows = _suggested_rows(sketch, len(pairs))
        for row, (values, tiles) in zip(rows, pairs, strict=True):
            for place, factors in tiles:
                row[place.columns] = factors
            for (place, _), value in zip(other_choices, values, strict=True):
                row[place.start] = value
        rows = rows[np.sort(np.unique(rows, axis=0, return_index=True)[1])]
        return Guesses(rows, _UNKNOWN_US * (1.0 + np.arange(len(rows)) / 1e3), rows.astype(np.int64))


def _machine_of(sketch: Sketch, machine: Machine) -> Machine:
    """Return the machine with one lane for tensorized sketches: their tiles count vectors."""
    slower = {"lanes": 1, "core_gflops": machine.core_gflops / machine.lanes}
    return machine.model_copy(update=slower) if _TENSORIZED in sketch.trace else machine


def _non_tile_choices(sketch: Sketch, spatial: int) -> list[tuple[PlacedChoice, list[int]]]:
    is_chained = sum(place.choice.kind is ChoiceKind.LOCATION for place in placed_choices(sketch)) > 1
    other_choices: list[tuple[PlacedChoice, list[int]]] = []
    for place in placed_choices(sketch):
        values = place.choice.values
        if place.choice.kind is ChoiceKind.CATEGORICAL:
            labels = place.choice.labels or values
            distances = {value: abs(labels[value] - _USUAL_UNROLL) for value in values}
            other_choices.append((place, sorted(values, key=distances.__getitem__)))
        elif place.choice.kind is ChoiceKind.LOCATION:
            # In the parallel loops or beforehand; a chain in inner loops would be very slow.
            in_parallel_loops = [value for value in values if value >= spatial - 1]
            beforehand = [value for value in values if value == -1]
            inner = [] if is_chained else in_parallel_loops[1:3]
            locations = in_parallel_loops[:1] + beforehand + inner
            other_choices.append((place, locations or [values[0]]))
    return other_choices


def _suggested_rows(sketch: Sketch, count: int) -> Rows:
    rows = np.zeros((count, sketch.decision_count), dtype=np.int32)
    for place in placed_choices(sketch):
        if place.choice.suggested:
            rows[:, place.columns] = place.choice.suggested
    return rows


def _columns(block: Block) -> list[slice]:
    """Return each axis's columns in a row that consists of a block's tiles only."""
    ends = np.cumsum([0, *(place.choice.width for place in block.tile_choices)])
    return [slice(int(start), int(end)) for start, end in pairwise(ends)]


_LOOKED_AT: Final = 1024  # fastest guesses that are ranked
_LEAST: Final = 64  # least length of a ranking: every round of a task needs a longer one
_LATER: Final = 1e-6
_ALIKE: Final = 0.3  # relative penalty of a guess that has all aspects of an earlier one


def ranked(
    sketches: Sequence[Sketch], nests: Sequence[Nest], machine: Machine, count: int
) -> list[Candidate]:
    """Return up to `count` candidates, best first: fast, and unlike earlier ones."""
    length = max(_LEAST, 1 << (count - 1).bit_length())  # longer rankings begin with shorter ones
    return list(_ranked(tuple(sketches), tuple(nests), machine.model_dump_json(), length)[:count])


@lru_cache(maxsize=256)
def _ranked(
    sketches: tuple[Sketch, ...], nests: tuple[Nest, ...], machine: str, count: int
) -> tuple[Candidate, ...]:
    # Begin with the last sketch, which fuses most.
    sketches = sketches[::-1]
    constructor = Constructor(nests, Machine.model_validate_json(machine))
    guesses = [constructor.guesses(sketch) for sketch in sketches]
    sketch = np.concatenate([np.full(len(part.us), index) for index, part in enumerate(guesses)])
    row_index = np.concatenate([np.arange(len(part.us)) for part in guesses])
    us = np.concatenate([part.us for part in guesses])
    # There is no time model for a sketch without choices: try it right after the best guess.
    us[us == FIXED_US] = min(FIXED_US, us.min() * (1 + _LATER))
    best = np.argsort(us, kind="stable")[:_LOOKED_AT]

    # The guesses' aspects, one per column, and in the last column their sketch.
    widest = max(part.aspects.shape[1] for part in guesses)
    aspects = np.full((len(best), widest + 1), -1, dtype=np.int64)
    for line, index in enumerate(best):
        row_aspects = guesses[sketch[index]].aspects[row_index[index]]
        aspects[line, : len(row_aspects)] = row_aspects
        aspects[line, -1] = sketch[index]

    # Select fast and dissimilar guesses greedily.
    times = us[best]
    similarity = np.zeros(len(best))
    is_free = np.ones(len(best), dtype=np.bool_)
    candidates: list[Candidate] = []
    while len(candidates) < min(count, len(best)):
        line = int(np.argmin(np.where(is_free, times * (1 + _ALIKE * similarity), np.inf)))
        is_free[line] = False
        similarity = np.maximum(similarity, (aspects == aspects[line]).mean(axis=1))
        sketch_number = sketch[best[line]]
        row = guesses[sketch_number].rows[row_index[best[line]]]
        candidates.append(Candidate(sketches[sketch_number].key, tuple(row.tolist())))
    return tuple(candidates)


def modelled_us(space: Space, candidate: Candidate) -> float | None:
    """Return a candidate's estimated time; None if its sketch is unknown or has no model."""
    sketch = space.by_key.get(candidate.sketch)
    if sketch is None:
        return None
    us = Constructor(space.nests, space.machine).time_us(sketch, decision_rows(sketch, [candidate], [0]))
    return None if us is None else float(us[0])
