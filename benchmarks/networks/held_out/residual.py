"""ResNet-50 for one image of 224 x 224, batch norms folded (He et al., 2015)."""

from onnx import ModelProto

from benchmarks.networks.layers import convolution
from zoo.graph import GraphBuilder

STAGES = ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2))  # narrow channels, blocks, stride of the first
WIDER, CLASSES = 4, 1000
BRANCH_GAIN = 0.5  # keeps the sums along the trunk from growing with depth


def _block(g: GraphBuilder, x: str, name: str, c_in: int, narrow: int, stride: int) -> str:
    c_out = narrow * WIDER
    branch = g.op("Relu", convolution(g, x, f"{name}.1", (c_in, narrow), (1, 1)))
    branch = g.op("Relu", convolution(g, branch, f"{name}.2", (narrow, narrow), (3, 3), stride=stride))
    branch = convolution(g, branch, f"{name}.3", (narrow, c_out), (1, 1), gain=BRANCH_GAIN)
    if stride != 1 or c_in != c_out:
        x = convolution(g, x, f"{name}.shortcut", (c_in, c_out), (1, 1), stride=stride, gain=1.0)
    return g.op("Relu", g.op("Add", x, branch))


def residual(seed: int) -> ModelProto:
    g = GraphBuilder("residual", seed)
    x = g.input("input", (1, 3, 224, 224))
    x = g.op("Relu", convolution(g, x, "stem", (3, 64), (7, 7), stride=2))
    x = g.op("MaxPool", x, kernel_shape=[3, 3], pads=[1, 1, 1, 1], strides=[2, 2])
    c_in = 64
    for i, (narrow, blocks, first) in enumerate(STAGES):
        for j in range(blocks):
            x = _block(g, x, f"stage{i}.{j}", c_in, narrow, first if j == 0 else 1)
            c_in = narrow * WIDER
    x = g.op("Flatten", g.op("GlobalAveragePool", x), axis=1)
    g.gemm(x, "classifier", (c_in, CLASSES))
    return g.build("logits", (1, CLASSES))
