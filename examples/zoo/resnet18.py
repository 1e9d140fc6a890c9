"""ResNet-18 for one image of 224 x 224 (He et al., 2015)."""

from onnx import ModelProto

from zoo.graph import GraphBuilder

STAGES = ((64, 1), (128, 2), (256, 2), (512, 2))  # channels, stride of the first block
BLOCKS = 2
BRANCH_GAIN = 0.5  # below He's, so that sums along the trunk do not grow with depth
CLASSES = 1000


def _block(g: GraphBuilder, x: str, name: str, channels: tuple[int, int], stride: int) -> str:
    """Append a residual block; its shortcut is a 1x1 convolution if the shape changes."""
    c_in, c_out = channels
    branch = g.op("Relu", g.conv(x, f"{name}.conv1", channels, 3, stride=stride))
    branch = g.conv(branch, f"{name}.conv2", (c_out, c_out), 3, gain=BRANCH_GAIN)
    if stride != 1 or c_in != c_out:
        x = g.conv(x, f"{name}.downsample", channels, 1, stride=stride, gain=1.0)
    return g.op("Relu", g.op("Add", branch, x))


def resnet18(seed: int) -> ModelProto:
    """Build ResNet-18 with batch norms folded into the convolutions, as exporters do for inference."""
    g = GraphBuilder("resnet18", seed)
    x = g.input("input", (1, 3, 224, 224))
    c_in = STAGES[0][0]
    x = g.op("Relu", g.conv(x, "conv1", (3, c_in), 7, stride=2))
    x = g.op("MaxPool", x, kernel_shape=[3, 3], pads=[1, 1, 1, 1], strides=[2, 2])
    for i, (c_out, first_stride) in enumerate(STAGES, start=1):
        for j in range(BLOCKS):
            x = _block(g, x, f"layer{i}.{j}", (c_in, c_out), first_stride if j == 0 else 1)
            c_in = c_out
    x = g.op("Flatten", g.op("GlobalAveragePool", x), axis=1)
    g.gemm(x, "fc", (c_in, CLASSES))
    return g.build("logits", (1, CLASSES))
