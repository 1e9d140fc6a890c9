"""Base class of torch models: layers, training, and an ensemble validated on left-out rows."""

from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from math import sqrt
from typing import TYPE_CHECKING, Any, ClassVar, Final, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from mallorn.core.installation import RESEARCH, import_optional_module
from mallorn.costmodels import ensemble_spread
from mallorn.costmodels.base import Column, CostModel, Groups, Indices, Matrix, Prediction, Vector
from mallorn.costmodels.labels import bounded_sample
from mallorn.costmodels.serialization import Numbers, pack, unpack
from mallorn.costmodels.views import VIEWS, check_rows, check_width
from mallorn_research.costmodels.dense_layers import AdamW, loss_gradient, one_group_batches
from mallorn_research.costmodels.standardize_inputs import Table, Tables, fit_table_scaling

if TYPE_CHECKING:
    from torch import Tensor


FAR: Final = -1e9  # logit that gets weight 0 in a softmax
Layers = dict[str, NDArray[np.floating]]
Tensors = Mapping[str, "Tensor"]


@contextmanager
def one_thread() -> Iterator[None]:
    """Make torch use one thread, for reproducible sums and without spinning threads."""
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def make_dense_layer(
    rng: np.random.Generator, name: str, inputs: int, outputs: int, *, gain: float = 1.0
) -> Layers:
    """Return He-initialised weights and zero offsets of one dense layer."""
    weights = rng.normal(0, gain * np.sqrt(2 / inputs), (inputs, outputs))
    offsets = np.zeros(outputs, dtype=np.float32)
    return {f"{name}.weights": weights.astype(np.float32), f"{name}.offsets": offsets}


def dense(layers: Tensors, name: str, values: "Tensor") -> "Tensor":
    return values @ layers[f"{name}.weights"] + layers[f"{name}.offsets"]


def head_scores(layers: Tensors, values: "Tensor", heads: "Tensor") -> "Tensor":
    """Return each row's score from its output head, after a hidden layer on `values`."""
    activations = dense(layers, "hidden", values).relu()
    return dense(layers, "out", activations).gather(1, heads[:, None])[:, 0]


def normal(values: "Tensor") -> "Tensor":
    """Normalise the last axis to mean 0 and deviation 1."""
    centred = values - values.mean(-1, keepdim=True)
    return centred / (centred.square().mean(-1, keepdim=True) + 1e-5).sqrt()


def masked_mean(values: "Tensor", present: "Tensor") -> "Tensor":
    """Return the mean over the lines marked in `present` (rows x lines); zero without any."""
    return (values * present[:, :, None]).sum(1) / present.sum(1, keepdim=True).clamp(min=1)


def attention(layers: Tensors, lines: "Tensor", present: "Tensor", heads: int) -> "Tensor":
    """Apply self-attention over the lines marked in `present`, with the layer `look`."""
    rows, count, width = lines.shape
    looks = dense(layers, "look", lines).reshape(rows, count, 3, heads, width // heads)
    asks, offers, values = looks.permute(2, 0, 3, 1, 4).unbind(0)
    match = asks @ offers.transpose(-1, -2) / sqrt(width // heads)
    share = match.masked_fill(present[:, None, None, :] == 0, FAR).softmax(-1)
    return (share @ values).transpose(1, 2).reshape(rows, count, width)


ORDER: Final = 0.02  # weight of the ranking loss; the squared error has weight 1
CHECK_STEPS: Final = 25
PATIENCE: Final = 4  # validation checks without improvement before stopping
MOST_CHECKED: Final = 256
CHUNK: Final = 256  # rows scored at once, so that their activations fit the caches

Network = Callable[[Tensors, "Tensor", "Tensor"], "Tensor"]
"""A function from layers, tables (rows x lines x columns) and each row's head to scores."""


class TrainingRows(NamedTuple):
    """Training rows of any task, and the index of the output head that predicts each."""

    tables: Table
    labels: Vector
    heads: Indices

    def at(self, rows: Indices) -> "TrainingRows":
        return TrainingRows(self.tables[rows], self.labels[rows], self.heads[rows])


def train_network(
    network: Network, start: Layers, rows: TrainingRows, batches: Indices, unseen: Indices, rate: float
) -> Layers:
    """Train a network; return its layers that score `unseen` best, or the last ones."""
    import torch

    layers = {name: layer.copy() for name, layer in start.items()}
    # Torch and numpy share these arrays, so that steps change both.
    tensors = {name: torch.from_numpy(layer).requires_grad_() for name, layer in layers.items()}
    adam = AdamW(list(layers.values()), rate, len(batches))
    check = rows.at(unseen[:MOST_CHECKED])
    best, least, stale_checks = start, np.inf, 0
    for step_number, batch in enumerate(batches, start=1):
        tables, labels, heads = rows.at(batch)
        scores = network(tensors, torch.from_numpy(tables), torch.from_numpy(heads))
        weight = ensemble_spread.weight_fast_rows(labels).astype(np.float32)
        push = loss_gradient(scores.detach().numpy()[None], labels[None], weight[None], ORDER)[0]
        slopes = torch.autograd.grad(scores, list(tensors.values()), torch.from_numpy(push))
        adam.step([slope.numpy() for slope in slopes])
        if step_number % CHECK_STEPS == 0 and len(check.labels):
            # The share of the labels' variance that linearly scaled scores do not explain.
            check_scores = scores_of(network, layers, check.tables, check.heads)
            check_labels = check.labels.astype(np.float64)
            weights = ensemble_spread.weight_fast_rows(check.labels)
            (own, covariance), (_, variance) = np.cov(check_scores, check_labels, aweights=weights, ddof=0)
            error = float(1 - max(covariance, 0) ** 2 / (own * variance)) if own * variance else 1.0
            stale_checks = 0 if error < least else stale_checks + 1
            if error < least:
                best, least = {name: layer.copy() for name, layer in layers.items()}, error
            if stale_checks == PATIENCE:
                break
    return best if np.isfinite(least) else layers


def scores_of(network: Network, layers: Layers, tables: Table, heads: Indices) -> Column:
    """Return scores in double precision, so that batching does not change a row's score."""
    import torch

    tensors = {name: torch.from_numpy(layer.astype(np.float64)) for name, layer in layers.items()}
    answer = np.empty(len(tables), dtype=np.float64)
    with torch.no_grad():
        for first in range(0, len(tables), CHUNK):
            rows = slice(first, first + CHUNK)
            table = torch.from_numpy(tables[rows].astype(np.float64))
            answer[rows] = network(tensors, table, torch.from_numpy(heads[rows])).numpy()
    return answer


MEMBERS: Final = 3
PARTS: Final = 6  # parts of the rows; each member leaves one out
BATCH: Final = 64
FEWEST_STEPS: Final = 50
MOST_ROWS: Final = 6000


class Neural(CostModel):
    """An ensemble of networks on padded tables; subclasses define `initial` and `scores`.

    Each batch has rows of one group. The loss is LambdaRank plus a squared error, which
    keeps scores near the labels. `fit` takes a bounded number of steps on a bounded sample,
    with early stopping on left-out rows.
    """

    KIND: ClassVar[str]
    KEPT: ClassVar[int] = 1  # structure columns, which are not standardised
    STEPS: ClassVar[int] = 600
    RATE: ClassVar[float] = 4e-3

    def __init__(self) -> None:
        import_optional_module("torch", f"the cost model {self.KIND}", "torch", RESEARCH)
        self._forget()

    def _forget(self) -> None:
        self._tables: Tables | None = None
        self._members: list[Layers] = []
        self._calibrations: list[ensemble_spread.ScoreCalibration] = []
        self._head = 0

    @classmethod
    @abstractmethod
    def initial(cls, rng: np.random.Generator, heads: int) -> Layers:
        """Return an untrained network; its last layer's offsets must be `out.offsets`."""

    @staticmethod
    @abstractmethod
    def scores(layers: Tensors, table: "Tensor", heads: "Tensor") -> "Tensor":
        """Return the score of each row from its output head, whose index `heads` gives."""

    def fit(self, features: Matrix, labels: Vector, groups: Groups, *, seed: int) -> None:
        self._train_ensemble(features, labels, groups, np.zeros(len(labels), dtype=np.int64), seed)

    def _train_ensemble(
        self, features: Matrix, labels: Vector, groups: Indices, heads: Indices, seed: int
    ) -> None:
        check_rows(features, labels, groups)
        check_width(features, self.view)
        self._forget()
        if not len(labels):
            return
        self._tables = fit_table_scaling(features, VIEWS[self.view])
        rng = np.random.default_rng(seed)
        start = [self.initial(rng, int(heads.max()) + 1) for _ in range(MEMBERS)]
        for layers in start:
            layers["out.offsets"] += labels.mean()
        self._train_members(start, features, labels, groups, heads, limit=self.STEPS, rng=rng)

    def fine_tuned(self, features: Matrix, labels: Vector, groups: Indices, *, steps: int, seed: int) -> Self:
        """Return a copy fine-tuned on these rows; columns are standardised as before."""
        check_rows(features, labels, groups)
        check_width(features, self.view)
        copy = type(self).load(self.save())
        heads = np.full(len(labels), self._head, dtype=np.int64)
        rng = np.random.default_rng(seed)
        copy._train_members(self._members, features, labels, groups, heads, limit=steps, rng=rng)
        return copy

    def interpolate_towards(self, model: Self, share: float) -> Self:
        """Return a copy whose layers are moved by `share` of the way to those of `model`."""
        copy = type(self).load(self.save())
        for layers, goal in zip(copy._members, model._members, strict=True):
            for name, layer in layers.items():
                layer += np.float32(share) * (goal[name] - layer)
        return copy

    @property
    def is_trained(self) -> bool:
        return bool(self._members)

    def _inputs(self, features: Matrix) -> Table:
        assert self._tables is not None  # noqa: S101
        return self._tables.standardize(features, VIEWS[self.view], self.KEPT)

    def _train_members(
        self,
        start: list[Layers],
        features: Matrix,
        labels: Vector,
        groups: Indices,
        heads: Indices,
        *,
        limit: int,
        rng: np.random.Generator,
    ) -> None:
        sample = bounded_sample(labels, MOST_ROWS, seed=int(rng.integers(2**31)))
        labels, heads = labels[sample], heads[sample]
        training = TrainingRows(self._inputs(features[sample]), labels, heads)
        # 1 for each row that a member trains on, 0 for others.
        part, members = rng.permutation(len(sample)) % PARTS, np.arange(MEMBERS)[:, None]
        training_counts = ((part != members) | (len(sample) < PARTS)).astype(np.int64)
        steps = min(limit, FEWEST_STEPS + len(sample))
        batches = one_group_batches(groups[sample], training_counts, steps, BATCH, rng)
        unseen = [rng.permutation(np.flatnonzero(counts == 0)) for counts in training_counts]
        with one_thread():
            self._members = [
                train_network(self.scores, layers, training, batches[:, member], unseen[member], self.RATE)
                for member, layers in enumerate(start)
            ]
            raw = self._raw(training.tables, heads)
        self._calibrations = [
            ensemble_spread.fit_calibration(raw[:, rows], labels[rows], training_counts[:, rows] == 0)
            for rows in (np.flatnonzero(heads == head) for head in range(len(start[0]["out.offsets"])))
        ]

    def _raw(self, tables: Table, heads: Indices) -> NDArray[np.float64]:
        return np.stack([scores_of(self.scores, layers, tables, heads) for layers in self._members])

    def predict(self, features: Matrix) -> Prediction:
        if self._tables is None or not len(features):
            return ensemble_spread.untrained_prediction(len(features))
        check_width(features, self.view)
        tables = self._inputs(features)
        with one_thread():
            raw = self._raw(tables, np.full(len(features), self._head, dtype=np.int64))
        return self._calibrations[self._head](raw)

    def save(self) -> bytes:
        arrays: dict[str, NDArray[Any]] = dict(self._tables._asdict()) if self._tables else {}
        for member, layers in enumerate(self._members):
            arrays |= {f"{member}.{name}": layer for name, layer in layers.items()}
        for head, calibration in enumerate(self._calibrations):
            arrays |= calibration.arrays(str(head))
        heads = [calibration.numbers for calibration in self._calibrations]
        return pack(self.KIND, {"heads": heads, "head": self._head, **self._extra_saved_numbers()}, arrays)

    def _extra_saved_numbers(self) -> Numbers:
        """Return further numbers to save with the model; a subclass may override this."""
        return {}

    @classmethod
    def load(cls, blob: bytes) -> Self:
        numbers, arrays = unpack(cls.KIND, blob)
        model = cls()
        model._head = numbers["head"]
        model._calibrations = [
            ensemble_spread.ScoreCalibration.from_stored(head, arrays, str(index))
            for index, head in enumerate(numbers["heads"])
        ]
        if model._calibrations:
            model._tables = Tables(*(arrays[name] for name in Tables._fields))
            model._members = [
                {name.removeprefix(own): layer for name, layer in arrays.items() if name.startswith(own)}
                for own in (f"{index}." for index in range(MEMBERS))
            ]
        return model
