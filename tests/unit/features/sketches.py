"""Sketches as MetaSchedule makes them, written down: a tiled product, and a factored reduction."""

import json

from mallorn.searchers.space import Choice, ChoiceKind, Sketch

UNROLL = Choice(ChoiceKind.CATEGORICAL, 1, values=(0, 1, 2, 3), labels=(0, 16, 64, 512), weights=(0.25,) * 4)


def tile(width: int, extent: int) -> Choice:
    return Choice(ChoiceKind.TILE, width, extent=extent, limit=64)


def location(*values: int) -> Choice:
    return Choice(ChoiceKind.LOCATION, 1, values=values)


_ROOT = [
    ["Annotate", ["b2", 32], ["meta_schedule.parallel"], []],
    ["Annotate", ["b2", 64], ["meta_schedule.vectorize"], []],
    ["SampleCategorical", [], [[0, 16, 64, 512], [0.25] * 4], ["v28"]],
    ["Annotate", ["b2", "v28"], ["meta_schedule.unroll_explicit"], []],
]


def product(relu_at: str) -> Sketch:
    """32 x 64 x 48, tiled SSRSRS, with a rectifier below the loop of this name."""
    trace = [
        ["GetSBlock", [], ["product", "main"], ["b0"]],
        ["GetSBlock", [], ["relu", "main"], ["b1"]],
        ["GetSBlock", [], ["root", "main"], ["b2"]],
        ["Annotate", ["b0", '"SSRSRS"'], ["meta_schedule.tiling_structure"], []],
        ["GetLoops", ["b0"], [], ["l4", "l5", "l6"]],
        ["SamplePerfectTile", ["l4"], [4, 64], ["v7", "v8", "v9", "v10"]],
        ["Split", ["l4", "v7", "v8", "v9", "v10"], [True, False], ["l11", "l12", "l13", "l14"]],
        ["SamplePerfectTile", ["l5"], [4, 64], ["v15", "v16", "v17", "v18"]],
        ["Split", ["l5", "v15", "v16", "v17", "v18"], [True, False], ["l19", "l20", "l21", "l22"]],
        ["SamplePerfectTile", ["l6"], [2, 64], ["v23", "v24"]],
        ["Split", ["l6", "v23", "v24"], [True, False], ["l25", "l26"]],
        ["Reorder", ["l11", "l19", "l12", "l20", "l25", "l13", "l21", "l26", "l14", "l22"], [], []],
        ["GetConsumers", ["b0"], [], ["b27"]],
        ["ReverseComputeAt", ["b27", relu_at], [1, -1], []],
        *_ROOT,
    ]
    return Sketch(f"relu at {relu_at}", json.dumps(trace), (tile(4, 32), tile(4, 64), tile(2, 48), UNROLL))


def factored(loop: str) -> Sketch:
    """The sum over 128 of each of 16 rows, in partial sums along this loop, and a block that uses it."""
    trace = [
        ["GetSBlock", [], ["sum", "main"], ["b0"]],
        ["GetSBlock", [], ["scale", "main"], ["b1"]],
        ["GetSBlock", [], ["root", "main"], ["b2"]],
        ["GetLoops", ["b0"], [], ["l3", "l4"]],
        ["SamplePerfectTile", ["l4"], [2, 64], ["v5", "v6"]],
        ["Split", ["l4", "v5", "v6"], [True, False], ["l7", "l8"]],
        ["RFactor", [loop], [1], ["b9"]],
        *_ROOT,
        ["GetProducers", ["b0"], [], ["b10"]],
        ["SampleComputeLocation", ["b0"], [], ["l11"]],
        ["ComputeAt", ["b0", "l11"], [1, -1], []],
        ["SampleComputeLocation", ["b10"], [], ["l12"]],
        ["ComputeAt", ["b10", "l12"], [1, -1], []],
    ]
    choices = (tile(2, 128), UNROLL, location(-2, -1, 0), location(-1, 0))
    return Sketch(f"factored at {loop}", json.dumps(trace), choices)


PRODUCT_WORK = (17.6, 5.044394119358453, 6.022367813028454, 5.614709844115208)
SUM_WORK = (11.0, 4.087462841250339, 7.011227255423254)

REAL = (product("l20"), product("l19"), factored("l7"), factored("l8"))
