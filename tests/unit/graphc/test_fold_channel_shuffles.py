"""Channels are shuffled by the weights of what reads them."""

from collections.abc import Callable, Mapping
from typing import Any

import pytest
from tvm import relax

from mallorn.graphc.layout.fold_channel_shuffles import FoldChannelShuffles
from tests.unit.graphc.networks import assert_same, network, weights
from tests.unit.graphc.pass_conformance import PassConformance, operators

IMAGE, HALF = (1, 16, 6, 5), (1, 8, 6, 5)
Emit = Callable[[Any], Any]


def shuffled(emit: Emit, x: Any, groups: int = 2) -> Any:
    batch, channels, *image = map(int, x.ty.shape)
    grouped = emit(relax.op.reshape(x, (batch, groups, channels // groups, *image)))
    turned = emit(relax.op.permute_dims(grouped, [0, 2, 1, 3, 4]))
    return emit(relax.op.reshape(turned, (batch, channels, *image)))


def pointwise(x: Any, outputs: int = 4) -> Any:
    return relax.op.nn.conv2d(x, weights(outputs, int(x.ty.shape[1]), 1, 1))


def depthwise(x: Any) -> Any:
    channels = int(x.ty.shape[1])
    return relax.op.nn.conv2d(x, weights(channels, 1, 3, 3), padding=1, groups=channels)


def half(emit: Emit, x: Any, part: int = 0) -> Any:
    return emit(emit(relax.op.split(x, 2, 1))[part])


def joined(emit: Emit, *parts: Any) -> Any:
    return emit(relax.op.concat(list(parts), 1))


def of_image(body: Callable[[Emit, Any], Any]) -> Any:
    return network(body, IMAGE)


class TestFoldChannelShuffles(PassConformance):
    PASS = FoldChannelShuffles
    BEFORE = """
lv[1, 2, 8, 6, 5] = reshape(x0[1, 16, 6, 5], [1, 2, 8, 6, 5])
lv1[1, 8, 2, 6, 5] = permute_dims(lv[1, 2, 8, 6, 5])
lv2[1, 16, 6, 5] = reshape(lv1[1, 8, 2, 6, 5], [1, 16, 6, 5])
gv[1, 4, 6, 5] = nn.conv2d(lv2[1, 16, 6, 5], constant[4, 16, 1, 1])
"""
    AFTER = "gv[1, 4, 6, 5] = nn.conv2d(x0[1, 16, 6, 5], constant[4, 16, 1, 1])"

    def fires(self) -> Any:
        return of_image(lambda emit, x: pointwise(shuffled(emit, x)))

    def leaves(self) -> Mapping[str, Any]:
        return {
            "no channel shuffle computes the input": of_image(
                lambda emit, x: pointwise(joined(emit, half(emit, x, 1), x))
            ),
            "the shuffled channels form too many runs, or some occur twice": network(
                lambda emit, x: pointwise(half(emit, shuffled(emit, x, 66))), (1, 132, 4, 3)
            ),
            "the other operand is computed": of_image(lambda emit, x: relax.op.add(shuffled(emit, x), x)),
            "the convolution has groups that sum over parts of the channels": of_image(
                lambda emit, x: relax.op.nn.conv2d(shuffled(emit, x), weights(4, 8, 1, 1), groups=2)
            ),
            "the layout is not ONNX's, or the weights are computed": network(
                lambda emit, x, w: relax.op.nn.conv2d(shuffled(emit, x), w), IMAGE, (4, 16, 1, 1)
            ),
            "the input is not an image": network(lambda _, x: relax.op.nn.relu(x), (2, 3)),
        }


def unit(emit: Emit, x: Any) -> Any:
    """Half of the channels pass by."""
    branch = emit(pointwise(emit(depthwise(emit(pointwise(half(emit, x, 1), 8)))), 8))
    return shuffled(emit, joined(emit, half(emit, x), branch))


def test_units_copy_only_what_their_convolutions_read() -> None:
    def body(emit: Emit, x: Any) -> Any:
        return pointwise(unit(emit, unit(emit, shuffled(emit, x))))

    mod = network(body, IMAGE)
    after, report = FoldChannelShuffles().apply(mod)
    assert report.fired == 3
    assert not {"permute_dims", "split", "take"} & {*operators(assert_same(after, mod))}


BETWEEN: dict[str, Callable[[Emit, Any], Any]] = {
    "depthwise": lambda _, x: depthwise(x),
    "by channel": lambda _, x: relax.op.multiply(x, weights(1, 16, 1, 1)),
    "fewer axes": lambda _, x: relax.op.add(x, weights(16, 1, 1)),
    "a number": lambda _, x: relax.op.maximum(x, relax.const(0.1, "float32")),
    "along rows": lambda _, x: relax.op.add(x, weights(5)),
    "pooled": lambda _, x: relax.op.nn.max_pool2d(x, (2, 2)),
    "one function": lambda _, x: relax.op.nn.relu(x),
}


@pytest.mark.parametrize("between", BETWEEN.values(), ids=BETWEEN)
def test_what_keeps_channels_apart_leaves_the_order_to_its_reader(
    between: Callable[[Emit, Any], Any],
) -> None:
    mod = of_image(lambda emit, x: pointwise(emit(between(emit, shuffled(emit, x, 4)))))
    after, report = FoldChannelShuffles().apply(mod)
    assert report.fired == 2
    assert not {"permute_dims", "take"} & {*operators(assert_same(after, mod))}


def test_what_others_read_keeps_its_order() -> None:
    mod = of_image(lambda emit, x: relax.op.nn.relu(shuffled(emit, x)))
    assert_same(FoldChannelShuffles()(mod), mod, tolerance=0)


def test_what_is_read_twice_is_left() -> None:
    mod = of_image(lambda emit, x: pointwise(joined(emit, shuffled(emit, x), x)))
    assert FoldChannelShuffles().apply(mod)[1].fired == 0


@pytest.mark.parametrize("axes", [[0, 2, 1, 4, 3], [0, 3, 2, 1, 4], [0, 1, 3, 2, 4]], ids=str)
def test_transposes_of_more_than_channels_are_no_shuffles(axes: list[int]) -> None:
    def body(emit: Emit, x: Any) -> Any:
        grouped = emit(relax.op.reshape(x, (1, 2, 8, 6, 5)))
        turned = emit(relax.op.permute_dims(grouped, axes))
        return pointwise(emit(relax.op.reshape(turned, IMAGE)))

    assert FoldChannelShuffles().apply(of_image(body))[1].fired == 0


@pytest.mark.parametrize("groups", [2, 4, 8])
@pytest.mark.parametrize("batch", [1, 3])
def test_any_number_of_groups_and_images_is_the_same(groups: int, batch: int) -> None:
    def body(emit: Emit, x: Any) -> Any:
        return pointwise(half(emit, shuffled(emit, x, groups), 1))

    mod = network(body, (batch, 32, 2, 3))
    assert_same(FoldChannelShuffles()(mod), mod)
