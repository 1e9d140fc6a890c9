"""Rewrite forms that differ from those of TVM's importer only in the order of axes."""

import numpy as np

from graphc.onnx.node_rewriter import NodeRewriter

_FIRST_STATE = 5  # input index, after data, weights, recurrent weights, bias and lengths


def batch_first(form: NodeRewriter) -> None:
    """Transpose data and states of an LSTM, GRU or RNN whose batch axis is first."""
    if not form.attribute("layout", 0):
        return
    transposed_inputs = (0, _FIRST_STATE, _FIRST_STATE + 1)
    inputs = [
        form.write("Transpose", name, perm=[1, 0, 2]) if at in transposed_inputs and name else name
        for at, name in enumerate(form.node.input)
    ]
    names = [f"{name}/layout" if name else "" for name in form.node.output]
    form.again(inputs, names, layout=None)
    orders = ([2, 0, 1, 3], [1, 0, 2], [1, 0, 2])
    for name, output, order in zip(names, form.node.output, orders, strict=False):
        if name:
            form.write("Transpose", name, perm=order, name=output)


def space_to_depth(form: NodeRewriter) -> None:
    """Rewrite SpaceToDepth in column-row-depth order. Raises ValueError for unknown sizes."""
    sizes, block = form.sizes(0), form.attribute("blocksize", 1)
    if form.attribute("mode", b"DCR") == b"DCR":
        return
    if sizes is None:
        raise ValueError("the sizes of its SpaceToDepth are not constant")
    batch, channels, height, width = sizes
    split = [batch, channels, height // block, block, width // block, block]
    blocks = form.write("Reshape", form.node.input[0], form.whole(*split))
    blocks = form.write("Transpose", blocks, perm=[0, 1, 3, 5, 2, 4])
    deep = [batch, channels * block**2, height // block, width // block]
    form.write("Reshape", blocks, form.whole(*deep), name=form.node.output[0])


def reverse_sequences(form: NodeRewriter) -> None:
    """Lower ReverseSequence to a gather of elements. Raises ValueError for unknown lengths."""
    sizes, lengths = form.sizes(0), form.value(1)
    time, batch = form.attribute("time_axis", 0), form.attribute("batch_axis", 1)
    if sizes is None or lengths is None:
        raise ValueError("the lengths of its ReverseSequence are not constant")
    places = np.arange(sizes[time])
    rows = np.array([np.where(places < length, length - 1 - places, places) for length in np.ravel(lengths)])
    shape = [1] * len(sizes)
    shape[time], shape[batch] = sizes[time], sizes[batch]
    all_indices = np.broadcast_to((rows.T if time < batch else rows).reshape(shape), sizes)
    indices = form.constant(np.ascontiguousarray(all_indices, "int64"))
    form.write("GatherElements", form.node.input[0], indices, axis=time, name=form.node.output[0])


def from_columns(form: NodeRewriter) -> None:
    """Lower Col2Im to a transposed convolution. Raises ValueError for unknown sizes."""
    sizes, image, block = form.sizes(0), form.value(1), form.value(2)
    if sizes is None or image is None or block is None:
        raise ValueError("the sizes of its Col2Im are not constant")
    axes, area = range(len(image)), int(np.prod(block))
    ones = [1 for _ in axes]
    strides, dilations = form.attribute("strides", ones), form.attribute("dilations", ones)
    pads = form.attribute("pads", [0, 0] * len(image))
    covered = [
        int(image[a]) + pads[a] + pads[a + len(image)] - dilations[a] * (int(block[a]) - 1) - 1 for a in axes
    ]
    steps = [each // stride + 1 for each, stride in zip(covered, strides, strict=True)]
    remainders = [each % stride for each, stride in zip(covered, strides, strict=True)]
    channels = sizes[1] // area
    data = form.write("Reshape", form.node.input[0], form.whole(sizes[0], sizes[1], *steps))
    kernel = np.tile(np.eye(area, dtype="float32").reshape(area, 1, *map(int, block)), (channels, 1, *ones))
    form.write(
        "ConvTranspose", data, form.constant(kernel), name=form.node.output[0], group=channels,
        strides=strides, dilations=dilations, pads=pads, output_padding=remainders,
    )  # fmt: skip


def upsample(form: NodeRewriter) -> None:
    """Rewrite Upsample as its successor Resize."""
    scales = form.value(1)
    if form.opset < 9 or scales is None:
        return
    ends = {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
    mode = form.attribute("mode", b"nearest").decode()
    form.write(
        "Resize", form.node.input[0], "", form.constant(scales), mode=mode, name=form.node.output[0], **ends
    )
