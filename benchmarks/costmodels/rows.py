"""The rows that models are compared on: the same candidates in every view, the same folds for all."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from benchmarks.costmodels.networks import read_networks
from benchmarks.costmodels.synthetic import made_up
from benchmarks.costmodels.view_file import ViewFile, path_of, read_view
from mallorn.core.errors import InvalidRequest
from mallorn.costmodels.views import DECISIONS, STATEMENTS
from mallorn.workers.round.feature_lookup import LOWERED, FeatureRows
from mallorn_research.generate.task_rule_file import GENERATED
from mallorn_research.pretraining.evaluate_splits import Fold, folds
from mallorn_research.pretraining.read_measurements import read_training_data
from mallorn_research.pretraining.training_data import Rows, TaskData, TrainingData, Weights, rows_for

RECORDED: Final = Path("benchmarks/data/spaces.parquet")
SPLITS: Final = ("within-task", "by-task", "by-network")
LEAST_ROWS: Final = 100  # valid ones of a task: a tenth of those held out is still a handful


@dataclass(frozen=True)
class Bench:
    """Frozen rows. Candidates that any stored view lacks are left out of all of them."""

    training_data: TrainingData
    stored: Mapping[str, ViewFile] = field(default_factory=dict)
    _rows: dict[str, Rows] = field(default_factory=dict, repr=False, compare=False)

    def compute_features(self, task: TaskData, view: str) -> FeatureRows:
        """A view that takes a compiler, as it was stored. Raises InvalidRequest where it was not."""
        if view not in self.stored:
            raise InvalidRequest(
                f"the view {view!r} is not stored beside these rows",
                hint=f"python -m benchmarks.costmodels.freeze DATA_DIR OUT --view {view}",
            )
        return self.stored[view].see(task)

    def rows(self, view: str) -> Rows:
        """The rows as a model of this view takes them."""
        if view not in self._rows:
            self._rows[view] = rows_for(self.training_data.tasks, view, self)
        return self._rows[view]

    @cached_property
    def task_names(self) -> list[str]:
        """A name for each group of rows."""
        tasks = enumerate(self.training_data.tasks)
        return [f"{number} {task.op} {task.workload[:12]}" for number, task in tasks]

    @property
    def plain(self) -> Rows:
        """The rows in the view that tells candidates apart: folds are made of it, whatever a model reads."""
        return self.rows(DECISIONS.name)

    @cached_property
    def fingerprint(self) -> str:
        """Tells these rows from all others."""
        digest = hashlib.sha256()
        for part in (self.plain.features, self.plain.latencies_us, self.plain.groups):
            digest.update(np.ascontiguousarray(part).tobytes())
        return digest.hexdigest()[:12]

    @property
    def full_programs(self) -> float | None:
        """Share of candidates with as many statements as the view holds: more would not be seen."""
        if STATEMENTS.name not in self.stored:
            return None
        tables = STATEMENTS.tables(self.rows(STATEMENTS.name).features)
        return float((tables[:, -1, 0] > 0).mean())

    def splits(self) -> tuple[str, ...]:
        """The splits that these rows can be parted by."""
        return SPLITS if len(self.networks) > 1 else SPLITS[:2]

    @property
    def networks(self) -> dict[str, Weights]:
        """The real networks: those of drawn tasks teach, and are not held out."""
        found = self.training_data.networks.items()
        return {name: weights for name, weights in found if not name.startswith(GENERATED)}

    def folds(self, split: str, seed: int) -> list[Fold]:
        """What is learned from and what is judged."""
        return list(folds(split, self.plain, self.networks, seed))


def load(data: str, least_rows: int = LEAST_ROWS) -> Bench:
    """`recorded`, `synthetic`, or Parquet: a recording, an export, or what `freeze` wrote.

    Raises NotFound or InvalidRequest, with one sentence, for files that cannot be read to their end.
    """
    if data == "synthetic":
        return Bench(made_up())
    path = RECORDED if data == "recorded" else Path(data)
    data = read_training_data(path)
    stored = {name: read_view(path_of(path, name), data.snapshot) for name in _views(path)}
    networks = read_networks(path) or data.networks
    tasks = usable(data.tasks, stored, least_rows)
    return Bench(replace(data, tasks=tasks, networks=networks), stored)


def usable(tasks: Sequence[TaskData], stored: Mapping[str, ViewFile], least_rows: int) -> list[TaskData]:
    """The rows that every view knows, of tasks that have enough of them."""
    known = [task.take(np.flatnonzero(_known(task, stored)).tolist()) for task in tasks]
    kept = [task for task in known if sum(us is not None for us in task.latencies_us) >= least_rows]
    if not kept:
        raise InvalidRequest(
            f"none of {len(tasks)} tasks has {least_rows} valid rows", hint="--least-rows 16, or measure more"
        )
    return kept


def _known(task: TaskData, stored: Mapping[str, ViewFile]) -> NDArray[np.bool_]:
    known = np.ones(len(task.trials), dtype=np.bool_)
    for view in stored.values():
        known &= view.see(task).known
    return known


def _views(path: Path) -> list[str]:
    return [name for name in sorted(LOWERED) if path.is_dir() and path_of(path, name).is_file()]
