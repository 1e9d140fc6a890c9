"""MobileNetV2 for one image of 224 x 224 (Sandler et al., 2018)."""

from onnx import ModelProto

from zoo.graph import GraphBuilder

STAGES = (  # expansion, channels, blocks, stride of the first block
    (1, 16, 1, 1),
    (6, 24, 2, 2),
    (6, 32, 3, 2),
    (6, 64, 4, 2),
    (6, 96, 3, 1),
    (6, 160, 3, 2),
    (6, 320, 1, 1),
)
STEM, HEAD, CLASSES = 32, 1280, 1000
BRANCH_GAIN = 0.5  # keeps the sums along the trunk from growing with depth


def _relu6(g: GraphBuilder, x: str) -> str:
    return g.op("Clip", x, "relu6.min", "relu6.max")


def _inverted_residual(
    g: GraphBuilder, x: str, name: str, channels: tuple[int, int], stride: int, expansion: int
) -> str:
    """Append an inverted residual block; add its input if it has the output's shape."""
    c_in, c_out = channels
    hidden = c_in * expansion
    branch = x
    if expansion != 1:
        branch = _relu6(g, g.conv(branch, f"{name}.expand", (c_in, hidden), 1))
    branch = _relu6(g, g.conv(branch, f"{name}.depthwise", (hidden, hidden), 3, stride=stride, group=hidden))
    residual = stride == 1 and c_in == c_out
    branch = g.conv(branch, f"{name}.project", (hidden, c_out), 1, gain=BRANCH_GAIN if residual else 1.0)
    return g.op("Add", x, branch) if residual else branch


def mobilenetv2(seed: int) -> ModelProto:
    """Build MobileNetV2 with batch norms folded into the convolutions."""
    g = GraphBuilder("mobilenetv2", seed)
    g.scalar("relu6.min", 0.0)
    g.scalar("relu6.max", 6.0)
    x = g.input("input", (1, 3, 224, 224))
    x = _relu6(g, g.conv(x, "stem", (3, STEM), 3, stride=2))
    c_in = STEM
    for i, (expansion, c_out, blocks, first_stride) in enumerate(STAGES, start=1):
        for j in range(blocks):
            stride = first_stride if j == 0 else 1
            x = _inverted_residual(g, x, f"stage{i}.{j}", (c_in, c_out), stride, expansion)
            c_in = c_out
    x = _relu6(g, g.conv(x, "head", (c_in, HEAD), 1))
    x = g.op("Flatten", g.op("GlobalAveragePool", x), axis=1)
    g.gemm(x, "classifier", (HEAD, CLASSES))
    return g.build("logits", (1, CLASSES))
