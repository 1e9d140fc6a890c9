"""Inputs that mean something: a photo, a printed page and speech, which other packages ship.

A kind of values is a source, and perhaps a factor and a summand: `photo`, `page*2-1`,
`speech*32767`, `normal`, `uniform*4+1`, `ids LOW HIGH` (integers, HIGH excluded), `fill VALUE`,
`letters` (texts of one letter).
"""

import io
import re
import struct
import wave
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from benchmarks.shipped.corpus import Archive, ShippedFile

PICTURES: Final = Archive(
    "https://files.pythonhosted.org/packages/dd/9b/9fb556463a34d9842491d72a421942c8baff4281025859c84fcdb5e7e602/"
    "scikit_image-0.25.2-cp311-cp311-manylinux_2_17_x86_64.manylinux2014_x86_64.whl",
    "24cc986e1f4187a12aa319f777b36008764e856e5013666a4a83f8df083c2641",
)
SPEECH: Final = Archive(
    "https://files.pythonhosted.org/packages/94/1b/4dc29653733202b68c09d9c6ca085cf67ac54859ee860647ef21ac1ff3dc/"
    "simpleaudio-1.0.4.tar.gz",
    "691c88649243544db717e7edf6a9831df112104e1aefb5f6038a5d071e8cf41d",
)
MEMBERS: Final = {
    "photo": (PICTURES, "skimage/data/astronaut.png"),
    "page": (PICTURES, "skimage/data/page.png"),
    "speech": (SPEECH, "simpleaudio-1.0.4/simpleaudio/test_audio/left_right.wav"),
}
FORM: Final = re.compile(
    r"(?P<source>[a-z]+)(?P<words>( -?[\d.]+)*)(\*(?P<scale>[\d.]+))?(?P<shift>[+-][\d.]+)?"
)
CHANNELS: Final = (1, 3)
Array = NDArray[Any]


def fetch_samples(folder: Path) -> None:
    """Fetch the photo, the page and the speech that the folder lacks, as arrays of floats from -1 to 1."""
    folder.mkdir(parents=True, exist_ok=True)
    for source, (archive, member) in MEMBERS.items():
        path = folder / f"{source}.npy"
        if not path.exists():
            data = archive.read_members([member])[member]
            np.save(path, read_wave(data) if member.endswith(".wav") else read_png(data))


def read_png(data: bytes) -> Array:
    """Return a picture of 8 bits a channel, not interlaced, as [height, width, channels] from 0 to 1."""
    position, compressed = 8, b""
    width = height = channels = 0
    while position < len(data):
        size, kind = struct.unpack(">I4s", data[position : position + 8])
        content = data[position + 8 : position + 8 + size]
        if kind == b"IHDR":
            width, height, depth, color, *_, interlaced = struct.unpack(">IIBBBBB", content)
            channels = {0: 1, 2: 3, 6: 4}[color]
            if depth != 8 or interlaced:
                raise ValueError("only pictures of 8 bits a channel, not interlaced")
        elif kind == b"IDAT":
            compressed += content
        position += size + 12
    raw, step = zlib.decompress(compressed), width * channels
    picture, above = bytearray(), bytes(step)
    for start in range(0, len(raw), step + 1):
        above = _unfilter(raw[start], raw[start + 1 : start + 1 + step], above, channels)
        picture += above
    pixels = np.frombuffer(bytes(picture), np.uint8).reshape(height, width, channels)[:, :, :3]
    return (pixels / 255.0).astype(np.float32)


def _unfilter(kind: int, row: bytes, above: bytes, channels: int) -> bytes:
    """Return a row of a picture's bytes from the differences to neighbours that the file holds."""
    line = bytearray(channels)  # a pixel before the first, of zeros
    for x, value in enumerate(row):
        left, upper, corner = line[x], above[x], above[x - channels] if x >= channels else 0
        match kind:
            case 0:
                guess = 0
            case 1:
                guess = left
            case 2:
                guess = upper
            case 3:
                guess = (left + upper) // 2
            case _:  # the neighbour that is nearest to a plane through all three
                plane = left + upper - corner
                guess = min((left, upper, corner), key=lambda near: abs(plane - near))
        line.append((value + guess) % 256)
    return bytes(line[channels:])


def read_wave(data: bytes) -> Array:
    """Return the first channel of a file of 16-bit samples, from -1 to 1, at 16,000 samples a second."""
    with wave.open(io.BytesIO(data)) as stream:
        frames = np.frombuffer(stream.readframes(stream.getnframes()), "<i2")
        samples = frames.reshape(-1, stream.getnchannels())[:, 0] / 32768.0
        times = np.arange(0, len(samples) / stream.getframerate(), 1 / 16_000)
        at_times = np.interp(times * stream.getframerate(), np.arange(len(samples)), samples)
        return np.asarray(at_times, np.float32)


def make_inputs(file: ShippedFile, dtypes: Mapping[str, str], samples: Path) -> dict[str, Array]:
    """Return arrays for a file's inputs in their order; `dtypes` are those that the file declares."""
    rng = np.random.default_rng(0)
    return {
        name: _values(spec["values"], tuple(spec["shape"]), dtypes[name], samples, rng)
        for name, spec in file.inputs.items()
    }


def _values(kind: str, shape: tuple[int, ...], dtype: str, samples: Path, rng: np.random.Generator) -> Array:
    form = FORM.fullmatch(kind)
    if form is None:
        raise ValueError(f"no kind of values: {kind!r}")
    words = [float(word) for word in form["words"].split()]
    array: Array
    match form["source"]:
        case "photo" | "page":
            array = _picture(np.load(samples / f"{form['source']}.npy"), shape)
        case "speech":
            array = np.resize(_loud_part(np.load(samples / "speech.npy")), shape)
        case "normal":
            array = rng.standard_normal(shape)
        case "uniform":
            array = rng.random(shape)
        case "ids":
            array = rng.integers(int(words[0]), int(words[1]), shape)
        case "fill":
            array = np.full(shape, words[0])
        case "letters":
            return rng.choice(list("abcdeghiknou"), shape)
        case source:
            raise ValueError(f"no source of values: {source!r}")
    array = array * float(form["scale"] or 1) + float(form["shift"] or 0)
    return np.array(array, dtype, order="C")


def _loud_part(speech: Array) -> Array:
    """Return the speech from its loudest tenth of a second on, so that short inputs hold a voice."""
    tenth = 1600
    loudness = [np.abs(speech[start : start + tenth]).mean() for start in range(0, len(speech) - tenth, 400)]
    return np.roll(speech, -400 * int(np.argmax(loudness)))


def _picture(picture: Array, shape: tuple[int, ...]) -> Array:
    """Return the picture in a shape [..., channels, height, width] or [..., height, width, channels]."""
    is_last = shape[-1] in CHANNELS and shape[-3] not in CHANNELS
    *batch, height, width, channels = shape if is_last else (*shape[:-3], *shape[-2:], shape[-3])
    rows = np.arange(height) * picture.shape[0] // height
    columns = np.arange(width) * picture.shape[1] // width
    resized = picture[rows][:, columns]
    if channels == 1:
        resized = resized.mean(axis=2, keepdims=True)
    elif resized.shape[2] == 1:
        resized = resized.repeat(channels, axis=2)
    resized = resized if is_last else resized.transpose(2, 0, 1)
    return np.array(np.broadcast_to(resized, (*batch, *resized.shape)))
