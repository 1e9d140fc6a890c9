"""Neural cost models that adapt to a new target, by momentum, heads or distillation."""

from abc import abstractmethod
from collections.abc import Sequence
from typing import ClassVar, Final, Self, TypeVar, cast

import numpy as np

from mallorn.core.errors import InvalidRequest
from mallorn.costmodels.base import CostModel, Groups, Indices, Matrix, Prediction, Vector
from mallorn.costmodels.labels import clip_time_labels, is_time_label
from mallorn.costmodels.metrics import iterate_group_rows
from mallorn.costmodels.serialization import Arrays, Numbers, as_array, unpack
from mallorn.costmodels.views import PRIMITIVES, VIEWS, View, check_rows
from mallorn_research.costmodels.neural_networks import TLP
from mallorn_research.costmodels.torch_model import Neural
from mallorn_research.costmodels.transfer_model_base import ManyDomains, TransferModel

MOMENTUM: Final = 0.9
UPDATES: Final = 4
STEPS_PER_UPDATE: Final = 100

Network = TypeVar("Network", bound=Neural)


def fine_tune_with_momentum(
    base: Network, features: Matrix, labels: Vector, groups: Groups, *, seed: int
) -> Network:
    """Fine-tune the network `base` on these rows, which are ordered from oldest to newest.

    Each of UPDATES updates fine-tunes a copy of the slow weights, at first those of the
    base, on a longer part of the rows. It then moves the slow weights a tenth of the way to
    the copy, so that a few unusual rows do not erase the base. Return the last copy.
    """
    slow = fast = base
    for update in range(1, UPDATES + 1):
        rows = slice(0, -(-len(labels) * update // UPDATES))
        fast = slow.fine_tuned(
            features[rows], labels[rows], groups[rows], steps=STEPS_PER_UPDATE, seed=seed + update
        )
        slow = slow.interpolate_towards(fast, 1 - MOMENTUM)
    return fast


class OnNetwork(TransferModel):
    """Base class of models that start from a pretrained network and adapt it to new rows.

    If the base is untrained, a new network is trained on the rows directly.
    """

    STORED: ClassVar[str]  # name of the trained network in the saved bytes
    CANNOT: ClassVar[str]  # why a base that is no network is refused, for the error message
    view: ClassVar[str] = PRIMITIVES.name

    def __init__(self, base: CostModel | None = None) -> None:
        network = base or TLP()
        if not isinstance(network, Neural):
            raise InvalidRequest(
                f"{type(base).__name__} {self.CANNOT}",
                hint="take a base of tlp, mtl-tlp, gnn or tree-lstm, or the cost model residual",
            )
        super().__init__(network)
        self._network: Neural = network
        self._learned: Neural | None = None

    @classmethod
    def can_extend(cls, kind: type[CostModel]) -> bool:
        return issubclass(kind, Neural)

    @abstractmethod
    def _train_from_base(self, features: Matrix, labels: Vector, groups: Groups, seed: int) -> Neural:
        """Return a new network that starts from the base and is trained on these rows."""

    def fit(self, features: Matrix, labels: Vector, groups: Groups, *, seed: int) -> None:
        check_rows(features, labels, groups)
        self._learned = None
        if not len(labels):
            return
        if self._network.is_trained:
            self._learned = self._train_from_base(features, labels, groups, seed)
        else:
            self._learned = type(self._network)()
            self._learned.fit(features, labels, groups, seed=seed)

    def predict(self, features: Matrix) -> Prediction:
        return (self._learned or self.base).predict(features)

    def _local_state(self) -> tuple[Numbers, Arrays]:
        return {}, {self.STORED: as_array(self._learned.save())} if self._learned else {}

    def _restore_local_state(self, numbers: Numbers, arrays: Arrays) -> None:
        if self.STORED in arrays:
            self._learned = type(self._network).load(arrays[self.STORED].tobytes())


class MoA(OnNetwork):
    """Adapts a pretrained network to new measurements, with momentum.

    Pruner (ASPLOS'25) keeps a Siamese copy of the pretrained weights throughout a search.
    Here no state is kept between refits. Each refit restarts from the base and makes four
    updates, each of which moves the slow weights a tenth of the way.
    """

    KIND: ClassVar[str] = "moa"
    STORED: ClassVar[str] = "adapted"
    CANNOT: ClassVar[str] = "has no layers that could adapt"

    def _train_from_base(self, features: Matrix, labels: Vector, groups: Groups, seed: int) -> Neural:
        return fine_tune_with_momentum(self._network, features, labels, groups, seed=seed)


ONLY: Final = ""  # the domain of rows without one


class MTLTLP(TLP, ManyDomains):
    """TLP with a shared trunk and an output head per domain (a target, or a class of hosts).

    `fit_domains` takes the domain of each row; all rows of a group must have the same.
    `fit` treats all rows as one domain. `predict` uses the home domain's head. A
    model of `from_base` starts each `fit` from its base's trunk and heads, and adapts the
    trunk and the home head as MoA does; `save` does not store the base.
    """

    KIND: ClassVar[str] = "mtl-tlp"

    def __init__(self) -> None:
        super().__init__()
        self._base: MTLTLP | None = None

    @classmethod
    def from_base(cls, base: CostModel) -> Self:
        model = cls.load(base.save())
        model._base = cast(Self, base) if model.is_trained else None
        return model

    def _forget(self) -> None:
        """Forget the domains of the training rows, too."""
        super()._forget()
        self.domains: tuple[str, ...] = (ONLY,)  # each has a head

    def fit(self, features: Matrix, labels: Vector, groups: Indices, *, seed: int) -> None:
        if self._base is None:
            return super().fit(features, labels, groups, seed=seed)
        check_rows(features, labels, groups)
        network: MTLTLP = self._base
        if len(labels):
            network = fine_tune_with_momentum(network, features, labels, groups, seed=seed)
        self._members, self._calibrations = network._members, network._calibrations

    def fit_domains(
        self,
        features: Matrix,
        labels: Vector,
        groups: Indices,
        domains: Sequence[str],
        *,
        home: str,
        seed: int,
    ) -> None:
        """Train a head per domain. Raises InvalidRequest if no row belongs to `home`."""
        if len(domains) != len(labels):
            raise InvalidRequest(
                f"there are {len(labels)} rows but {len(domains)} domains", hint="give every row one domain"
            )
        names, heads = np.unique([*domains, home], return_inverse=True)
        distinct = tuple(str(name) for name in names)
        if home not in domains:
            known = ", ".join(sorted(map(repr, set(domains))))
            raise InvalidRequest(f"no row belongs to the domain {home!r}", hint=f"known: {known}")
        self._train_ensemble(features, labels, groups, heads[:-1].astype(np.int64), seed)
        self.domains, self._head = distinct, distinct.index(home)

    def _extra_saved_numbers(self) -> Numbers:
        return {"domains": list(self.domains)}

    @classmethod
    def load(cls, blob: bytes) -> Self:
        model = super().load(blob)
        model.domains = tuple(unpack(cls.KIND, blob)[0]["domains"])
        return model


TRUSTED: Final = 16.0  # rows of a task at which its measurements weigh as much as the teacher
STUDENT_STEPS: Final = 300
CROSSINGS: Final = 4  # crossed rows per measured row
MOST_CROSSINGS: Final = 1000


class TCL(OnNetwork):
    """A student network, trained on measured labels blended with a teacher's scores.

    After TCL (2026): base models are trained on actively selected rows
    (`mallorn costmodels pretrain --choose`) and distilled into a model of another platform,
    which then needs few measurements of its own.

    The paper distils into networks that are trained on one target after another. Here the
    base is the teacher; the student starts from its weights, and is distilled again at each
    refit. The teacher counts less the more times of a task were measured. Failures keep
    their labels. Rows crossed from two measured rows get labels from the teacher only.
    Without rows the teacher predicts; an untrained base does not teach.
    """

    KIND: ClassVar[str] = "tcl"
    STORED: ClassVar[str] = "student"
    CANNOT: ClassVar[str] = "is not a network that could teach another"

    def _train_from_base(self, features: Matrix, labels: Vector, groups: Groups, seed: int) -> Neural:
        # Crossed rows were not measured: the teacher alone labels them.
        teacher_scores = self._network.predict(features).mean
        crossed_rows, parents = cross_rows(features, groups, VIEWS[self.view], np.random.default_rng(seed))
        best_scores = [teacher_scores[groups == group].max() for group in groups[parents]]
        best = np.array(best_scores, dtype=np.float32)
        crossed_labels = clip_time_labels(np.minimum(self._network.predict(crossed_rows).mean - best, 0))
        return self._network.fine_tuned(
            np.concatenate([features, crossed_rows]),
            np.concatenate([soften_labels(labels, teacher_scores, groups), crossed_labels]),
            np.concatenate([groups, groups[parents]]),
            steps=STUDENT_STEPS,
            seed=seed,
        )


def cross_rows(
    features: Matrix, groups: Groups, view: View, rng: np.random.Generator
) -> tuple[Matrix, Indices]:
    """Return crossovers of random pairs of a task's rows, and each first parent's index."""
    count = min(CROSSINGS * len(features), MOST_CROSSINGS)
    mothers = rng.integers(len(features), size=count)
    fathers = np.array([rng.choice(np.flatnonzero(groups == groups[index])) for index in mothers])
    tables = view.tables(features)
    is_mothers = rng.random((count, view.shape[0])) < 0.5
    shape = (count, view.shape[0], *(1,) * (len(view.shape) - 1))
    rows = np.where(is_mothers.reshape(shape), tables[mothers], tables[fathers])
    return rows.reshape(count, -1), mothers


def soften_labels(labels: Vector, teacher_scores: Vector, groups: Groups) -> Vector:
    """Blend labels of times with a teacher's scores, less if a task has many times."""
    has_time, answer = is_time_label(labels), labels.copy()
    for lines in iterate_group_rows(groups):
        with_time = lines[has_time[lines]]
        if len(with_time):
            share = TRUSTED / (TRUSTED + len(with_time))
            teacher = teacher_scores[with_time]
            blend = (1 - share) * labels[with_time] + share * (teacher - teacher.max())
            answer[with_time] = clip_time_labels(np.minimum(blend - blend.max(), 0))
    return answer
