"""What was learned elsewhere helps with few local rows, by heads, by momentum and by residuals."""

from typing import Final

import numpy as np
import pytest

from mallorn.core.errors import InvalidRequest
from mallorn.costmodels.base import FAILED_LABEL, CostModel, Vector
from mallorn.costmodels.metrics import pairwise_accuracy
from mallorn.costmodels.testing import Data, assert_same, easy_data
from mallorn.costmodels.views import PRIMITIVES
from mallorn_research.costmodels.adapted_networks import (
    MTLTLP,
    TCL,
    MoA,
    cross_rows,
    fine_tune_with_momentum,
    soften_labels,
)
from mallorn_research.costmodels.neural_networks import TLP
from mallorn_research.costmodels.residual import Residual

FEW: Final = 40


def measured(rows: int, seed: int, device: str) -> Data:
    """The same candidates everywhere, but on `there` a column more counts, and groups are others."""
    features, labels, groups = easy_data(rows, seed, PRIMITIVES.name)
    if device == "there":
        column = features.reshape(rows, *PRIMITIVES.shape)[:, 1, 4 + 3]
        labels = np.where(labels > FAILED_LABEL, np.maximum(labels - 0.2 * column, FAILED_LABEL), labels)
        groups = groups + 1
    return features, labels.astype(np.float32), groups


@pytest.fixture(scope="module")
def base() -> TLP:
    model = TLP()
    model.fit(*measured(500, 0, "here"), seed=0)
    return model


@pytest.fixture(scope="module")
def alone() -> float:
    model = TLP()
    model.fit(*measured(FEW, 1, "there"), seed=0)
    return accuracy(model)


def accuracy(model: CostModel) -> float:
    features, labels, groups = measured(300, 7, "there")
    return pairwise_accuracy(model.predict(features).mean, labels, groups)


def test_momentum_carries_a_base_to_another_device(base: TLP, alone: float) -> None:
    local = measured(FEW, 1, "there")
    untouched = base.save()
    model = fine_tune_with_momentum(base, *local, seed=0)
    assert accuracy(model) > alone + 0.1
    assert base.save() == untouched
    assert_same(fine_tune_with_momentum(base, *local, seed=0).predict(local[0]), model.predict(local[0]))


def test_before_any_local_row_the_base_answers_and_both_are_stored(base: TLP) -> None:
    features, labels, groups = measured(FEW, 1, "there")
    model = MoA.from_base(base)
    assert_same(model.predict(features), base.predict(features))
    model.fit(features, labels, groups, seed=0)
    again = MoA.load(model.save())
    assert_same(again.predict(features), model.predict(features))
    assert_same(again.base.predict(features), base.predict(features))


def test_a_student_takes_over_what_its_teacher_knows_of_another_device(base: TLP, alone: float) -> None:
    local = measured(FEW, 1, "there")
    untouched = base.save()
    model = TCL.from_base(base)
    assert_same(model.predict(local[0]), base.predict(local[0]))
    model.fit(*local, seed=0)
    assert accuracy(model) > alone + 0.05
    assert base.save() == untouched
    assert_same(TCL.load(model.save()).predict(local[0]), model.predict(local[0]))


def test_a_teacher_softens_times_and_no_failures_and_the_less_the_more_rows_there_are() -> None:
    groups = np.repeat([0, 1], [2, 200])
    labels = np.zeros(202, dtype=np.float32)
    labels[[1, 3]] = -1.0
    labels[5] = FAILED_LABEL
    taught = np.zeros(202, dtype=np.float32)
    soft = soften_labels(labels, taught, groups)
    assert soft[5] == FAILED_LABEL
    assert -0.15 < soft[1] < 0
    assert -1 < soft[3] < -0.9


def test_crossings_are_of_rows_of_one_task() -> None:
    features = np.repeat(np.arange(6, dtype=np.float32)[:, None], PRIMITIVES.width, axis=1)
    groups = np.array([0, 0, 0, 1, 1, 1])
    drawn, mothers = cross_rows(features, groups, PRIMITIVES, np.random.default_rng(0))
    assert len(drawn) == len(mothers) == 24
    for row, mother in zip(drawn, mothers, strict=True):
        assert set(row.tolist()) <= set(np.flatnonzero(groups == groups[mother]).tolist())
        assert (PRIMITIVES.tables(row[None])[0] == PRIMITIVES.tables(row[None])[0][:, :1]).all()


def test_residuals_stand_on_a_network_as_well(base: TLP, alone: float) -> None:
    model = Residual.from_base(base)
    model.fit(*measured(FEW, 1, "there"), seed=0)
    assert model.view == PRIMITIVES.name
    assert accuracy(model) > alone + 0.1


@pytest.fixture(scope="module")
def two_heads() -> MTLTLP:
    parts = [measured(500, 0, "here"), measured(FEW, 1, "there")]
    features, labels, groups = (np.concatenate(part) for part in zip(*parts, strict=True))
    model = MTLTLP()
    domains = ["here"] * 500 + ["there"] * FEW
    model.fit_domains(features, labels, groups, domains, home="there", seed=0)
    return model


def test_a_head_learns_from_the_trunk_of_all(two_heads: MTLTLP, alone: float) -> None:
    assert two_heads.domains == ("here", "there")
    assert accuracy(two_heads) > alone + 0.1


def test_the_head_of_another_target_goes_on_with_momentum_from_few_rows(alone: float) -> None:
    heads = MTLTLP()
    heads.fit_domains(*measured(500, 0, "here"), ["here"] * 500, home="here", seed=0)
    model = MoA.from_base(heads)
    model.fit(*measured(FEW, 1, "there"), seed=0)
    assert accuracy(model) > alone + 0.1


def test_a_model_with_heads_goes_on_from_a_base_of_its_kind(two_heads: MTLTLP, alone: float) -> None:
    untouched, local = two_heads.save(), measured(FEW, 2, "there")
    model = MTLTLP.from_base(two_heads)
    assert_same(model.predict(local[0]), two_heads.predict(local[0]))
    model.fit(*measured(30, 3, "there"), seed=5)
    model.fit(*local, seed=0)
    assert two_heads.save() == untouched
    assert_same(model.predict(local[0]), fine_tune_with_momentum(two_heads, *local, seed=0).predict(local[0]))
    assert accuracy(model) > alone + 0.1
    features, labels, groups = measured(300, 8, "here")
    other = with_head(model, "here")
    assert pairwise_accuracy(other.predict(features).mean, labels, groups) > 0.65
    model.fit(*(part[:0] for part in local), seed=0)
    assert_same(model.predict(local[0]), two_heads.predict(local[0]))


def with_head(model: MTLTLP, domain: str) -> MTLTLP:
    """Return a copy that predicts for another domain of the training rows."""
    copy = MTLTLP.load(model.save())
    copy._head = copy.domains.index(domain)
    return copy


def test_a_base_that_learned_nothing_is_not_gone_on_from() -> None:
    local = measured(FEW, 1, "there")
    model, anew = MTLTLP.from_base(MTLTLP()), MTLTLP()
    for each in (model, anew):
        each.fit(*local, seed=0)
    assert model.save() == anew.save()
    assert [MTLTLP.can_extend(kind) for kind in (MTLTLP, TLP, MoA)] == [True, False, False]


def test_another_head_answers_otherwise_and_is_stored(two_heads: MTLTLP) -> None:
    features, labels, groups = measured(300, 8, "here")

    def right(scores: Vector) -> float:
        return pairwise_accuracy(scores, labels, groups)

    here = with_head(two_heads, "here")
    assert right(here.predict(features).mean) > right(two_heads.predict(features).mean)
    assert_same(MTLTLP.load(here.save()).predict(features), here.predict(features))


def test_every_row_has_a_domain_and_home_is_one_of_them() -> None:
    data = measured(20, 0, "here")
    with pytest.raises(InvalidRequest, match="there are 20 rows but 3 domains"):
        MTLTLP().fit_domains(*data, ["here"] * 3, home="here", seed=0)
    with pytest.raises(InvalidRequest, match="no row belongs to the domain 'there'"):
        MTLTLP().fit_domains(*data, ["here"] * 20, home="there", seed=0)
