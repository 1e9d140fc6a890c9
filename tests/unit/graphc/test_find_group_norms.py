"""Norms that the importer spells out are found again where they norm channels or groups of them."""

from collections.abc import Mapping
from typing import Any

from tvm import relax

from mallorn.graphc.norm.group_norms import NO_NORM, FindGroupNorms
from tests.unit.graphc.networks import assert_same, network
from tests.unit.graphc.pass_conformance import PassConformance, operators

IMAGE, ROWS = (2, 16, 3, 5), (2, 4, 60)


def spelled(emit: Any, x: Any, axes: tuple[int, ...] = (2, 3)) -> Any:
    """A norm as the importer writes it."""
    mean, variance = (emit(each(x, [*axes], True)) for each in (relax.op.mean, relax.op.variance))
    total = emit(relax.op.add(variance, relax.const(1e-5, "float32")))
    return relax.op.divide(emit(relax.op.subtract(x, mean)), emit(relax.op.sqrt(total)))


def grouped(emit: Any, x: Any, rows: tuple[int, ...] = ROWS, gain: float = 1.0) -> Any:
    """A norm of groups as exporters write it, with gains."""
    normed = emit(spelled(emit, emit(relax.op.reshape(x, rows)), (2,)))
    gained = emit(relax.op.multiply(normed, relax.const([[[gain]]], "float32")))
    return relax.op.reshape(gained, IMAGE)


class TestFindGroupNorms(PassConformance):
    PASS = FindGroupNorms
    BEFORE = """
lv[2, 16, 1, 1] = mean(x0[2, 16, 3, 5])
lv1[2, 16, 1, 1] = variance(x0[2, 16, 3, 5])
lv2[2, 16, 1, 1] = add(lv1[2, 16, 1, 1], constant[])
lv3[2, 16, 3, 5] = subtract(x0[2, 16, 3, 5], lv[2, 16, 1, 1])
lv4[2, 16, 1, 1] = sqrt(lv2[2, 16, 1, 1])
gv[2, 16, 3, 5] = divide(lv3[2, 16, 3, 5], lv4[2, 16, 1, 1])
"""
    AFTER = "gv[2, 16, 3, 5] = nn.group_norm(x0[2, 16, 3, 5], constant[16], constant[16])"

    def fires(self) -> Any:
        return network(spelled, IMAGE)

    def leaves(self) -> Mapping[str, Any]:
        return {
            "the result is not an image whose channels fill vectors": network(spelled, (2, 12, 3, 5)),
            NO_NORM: network(lambda emit, x: spelled(emit, x, (1, 2)), IMAGE),
            "the norm was scaled or shifted before the reshape": network(
                lambda emit, x: grouped(emit, x, gain=2.0), IMAGE
            ),
            "the rows of the norm are not groups of channels": network(
                lambda emit, x: grouped(emit, x, (4, 2, 60)), IMAGE
            ),
        }


def test_norms_of_groups_and_of_what_these_norm_are_found() -> None:
    mod = network(lambda emit, x: spelled(emit, emit(grouped(emit, x))), IMAGE)
    after, report = FindGroupNorms(8).apply(mod)
    assert (report.fired, "variance" in operators(assert_same(after, mod))) == (2, False)
