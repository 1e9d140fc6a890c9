"""Whether 32 users click: embeddings, their products, thin perceptrons (DLRM, Naumov et al., 2019)."""

import itertools

import numpy as np
from onnx import ModelProto, TensorProto

from benchmarks.networks.layers import HE, reshape
from zoo.graph import GraphBuilder

USERS, DENSE, TABLES, ROWS, WIDTH = 32, 13, 26, 10_000, 64
BOTTOM, TOP = (DENSE, 512, 256, WIDTH), (512, 256, 1)


def _perceptron(g: GraphBuilder, x: str, name: str, widths: tuple[int, ...]) -> str:
    for i, features in enumerate(itertools.pairwise(widths)):
        x = g.gemm(x, f"{name}{i}", features, gain=HE)
        x = g.op("Sigmoid" if features[1] == 1 else "Relu", x)
    return x


def _embedded(g: GraphBuilder, ids: str, table: int) -> str:
    column = g.op("Gather", ids, g.constant(f"column{table}", np.array(table, np.int64)), axis=1)
    rows = g.op("Gather", g.normal(f"table{table}", (ROWS, WIDTH), 0.3), column, axis=0)
    return reshape(g, rows, (USERS, 1, WIDTH))


def recommender(seed: int) -> ModelProto:
    g = GraphBuilder("recommender", seed)
    numbers = g.input("numbers", (USERS, DENSE))
    ids = g.input("ids", (USERS, TABLES), TensorProto.INT64)
    dense = _perceptron(g, numbers, "bottom", BOTTOM)
    vectors = [reshape(g, dense, (USERS, 1, WIDTH)), *(_embedded(g, ids, table) for table in range(TABLES))]
    stacked = g.op("Concat", *vectors, axis=1)
    products = g.op("MatMul", stacked, g.op("Transpose", stacked, perm=[0, 2, 1]))
    met = (TABLES + 1) ** 2
    joined = g.op("Concat", dense, reshape(g, products, (USERS, met)), axis=1)
    _perceptron(g, joined, "top", (WIDTH + met, *TOP))
    return g.build("click", (USERS, 1))
