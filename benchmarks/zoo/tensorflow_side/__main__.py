"""Writes small networks of TensorFlow and Keras as ONNX files, in an interpreter with tensorflow and tf2onnx.

python benchmarks/zoo/tensorflow_side -o DIR

Images have their channels last, sizes are computed from shapes, and loops count in int64, as in the files
that tf2onnx makes of users' models. A network without a file is named with the reason, and the others go on.
"""

import argparse
from collections.abc import Callable
from pathlib import Path

import tensorflow as tf
import tf2onnx

OPSET = 17
WIDTH, HEADS, SIDE = 64, 4, 96
L = tf.keras.layers
Function = tuple[Callable, tuple[tf.TensorSpec, ...]]


class Attention(tf.Module):
    """Masked attention whose sizes are read from shapes."""

    def __init__(self) -> None:
        super().__init__()
        self.table = tf.Variable(tf.random.normal([100, WIDTH]))
        self.inner = tf.Variable(tf.random.normal([WIDTH, 3 * WIDTH]) / 8)
        self.outer = tf.Variable(tf.random.normal([WIDTH, WIDTH]) / 8)

    def __call__(self, tokens: tf.Tensor, mask: tf.Tensor) -> tf.Tensor:
        x = tf.gather(self.table, tokens)
        batch, length = tf.shape(x)[0], tf.shape(x)[1]
        products = tf.reshape(tf.reshape(x, [-1, WIDTH]) @ self.inner, [batch, length, 3 * WIDTH])
        of_heads = [
            tf.transpose(tf.reshape(part, [batch, length, HEADS, WIDTH // HEADS]), [0, 2, 1, 3])
            for part in tf.split(products, 3, -1)
        ]
        query, key, value = of_heads
        scores = tf.matmul(query, key, transpose_b=True) / 4
        scores += (1 - tf.cast(mask, tf.float32))[:, None, None, :] * -1e9
        places = tf.range(length)
        least = tf.fill([batch, HEADS, length, length], -1e9)
        scores = tf.where(places[:, None] >= places[None, :], scores, least)
        mixed = tf.transpose(tf.nn.softmax(scores) @ value, [0, 2, 1, 3])
        return tf.reshape(tf.reshape(mixed, [-1, WIDTH]) @ self.outer, tf.shape(x))


def attention() -> Function:
    module = Attention()
    signature = tuple(tf.TensorSpec([1, 16], tf.int64, name=name) for name in ("tokens", "mask"))
    return tf.function(lambda tokens, mask: module(tokens, mask)), signature


def loop() -> Function:
    weights = tf.Variable(tf.random.normal([32, 32]) / 6)

    def forward(x: tf.Tensor) -> tf.Tensor:
        step, state = tf.constant(0, tf.int64), tf.zeros([1, 32])
        while step < 8:
            state = tf.tanh(state @ weights + x[:, tf.cast(step, tf.int32)])
            step += 1
        return state

    return tf.function(forward), (tf.TensorSpec([1, 8, 32], tf.float32, name="x"),)


def _of(model: Callable, shape: tuple[int, ...], dtype: str = "float32") -> Function:
    return tf.function(lambda x: model(x, training=False)), (tf.TensorSpec([1, *shape], dtype, name="x"),)


def _layers(*layers: Callable, shape: tuple[int, ...], dtype: str = "float32") -> Function:
    model = tf.keras.Sequential([tf.keras.Input(shape, batch_size=1, dtype=dtype), *layers])
    return _of(model, shape, dtype)


def _application(name: str, **options: object) -> Function:
    shape = (SIDE, SIDE, 3)
    return _of(getattr(tf.keras.applications, name)(weights=None, input_shape=shape, **options), shape)


def multi_head_attention() -> Function:
    x = tf.keras.Input((16, WIDTH), batch_size=1)
    mixed = L.MultiHeadAttention(HEADS, 16)(x, x, use_causal_mask=True)
    return _of(tf.keras.Model(x, L.LayerNormalization()(x + mixed)), (16, WIDTH))


def unet() -> Function:
    return _layers(
        L.Conv2D(8, 3, padding="same", activation="relu"),
        L.MaxPool2D(),
        L.Conv2DTranspose(8, 3, 2, padding="same"),
        L.UpSampling2D(interpolation="bilinear"),
        L.SeparableConv2D(4, 3, padding="same"),
        L.PReLU(),
        shape=(16, 16, 3),
    )


def embedding() -> Function:
    return _layers(
        L.Embedding(100, 32),
        L.Conv1D(32, 3, padding="causal", activation="relu"),
        L.GlobalMaxPooling1D(),
        L.Dense(4, activation="softmax"),
        shape=(24,),
        dtype="int32",
    )


def volumes() -> Function:
    conv = L.Conv3D(4, 3, padding="same")
    return _layers(conv, L.BatchNormalization(), L.GlobalAveragePooling3D(), shape=(8, 8, 8, 2))


MAKERS: dict[str, Callable[[], Function]] = {
    "tf-attention": attention,
    "tf-loop": loop,
    "tf-mha": multi_head_attention,
    "tf-lstm": lambda: _layers(L.LSTM(32, return_sequences=True), L.LSTM(16), L.Dense(4), shape=(12, 8)),
    "tf-gru-both-ways": lambda: _layers(L.Bidirectional(L.GRU(16)), L.Dense(4), shape=(12, 8)),
    "tf-embedding-conv1d": embedding,
    "tf-unet": unet,
    "tf-conv3d": volumes,
    "tf-mobilenet-v2": lambda: _application("MobileNetV2", alpha=0.35),
    "tf-mobilenet-v3": lambda: _application("MobileNetV3Small"),
    "tf-efficientnet-b0": lambda: _application("EfficientNetB0"),
}


def main() -> None:
    """Write the networks without a file."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("-o", "--out", type=Path, required=True, help="where the files go")
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    for name, make in MAKERS.items():
        path = args.out / f"{name}.onnx"
        if path.exists():
            continue
        try:
            tf.keras.utils.set_random_seed(0)
            function, signature = make()
            tf2onnx.convert.from_function(function, signature, opset=OPSET, output_path=str(path))
            print(f"{name}: {path.stat().st_size / 1e6:.1f} MB", flush=True)
        except Exception as error:  # whatever a library raises of its own model is no reason to stop
            path.unlink(missing_ok=True)
            print(f"{name}: not exported: {type(error).__name__}: {str(error).strip()[:200]}", flush=True)


if __name__ == "__main__":
    main()
