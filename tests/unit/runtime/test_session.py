"""Sessions: right numbers without copies, checked inputs, shared weights and threads, many callers."""

import os
import shutil
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mallorn_runtime import InputRefused, OptionRefused, Session, TensorInfo, empty, session, tensors
from tests.fixtures.elf_files import METADATA

X = np.arange(32, dtype="float32").reshape(4, 8)
B = np.ones(8, "float32")


def aligned(array: Any) -> Any:
    made = empty(array.shape, array.dtype)
    made[...] = array
    return made


class Lender:
    """What has `__dlpack__` and is no array of numpy."""

    def __init__(self, array: Any, device: tuple[int, int] = (1, 0)) -> None:
        self._array, self._device = array, device

    def __dlpack__(self, **options: Any) -> Any:
        return self._array.__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self._device


@pytest.fixture
def copies(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The inputs that were copied."""
    copied: list[Any] = []
    copy = tensors.copy_array
    monkeypatch.setattr(tensors, "copy_array", lambda value: (copied.append(value), copy(value))[1])
    return copied


def test_it_says_what_the_library_takes_and_where_it_comes_from(library: Path) -> None:
    one = Session(library)
    assert [str(spec) for spec in one.inputs] == ["float32 (4, 8)", "float32 (8)"]
    assert [spec.name for spec in one.outputs] == ["y", "same", "weight"]
    assert (one.meta["job"], one.meta["threads"], set(one.meta["digests"])) == ("1234", 3, {"model"})


def test_aligned_arrays_are_taken_and_outputs_handed_on_without_a_copy(
    library: Path, copies: list[Any]
) -> None:
    one, x, b = Session(library), aligned(X), aligned(B)
    y = one.run({"x": x, "b": b})["y"]
    assert np.array_equal(y, 2 * X + 1)
    assert y.flags.writeable
    again = one.run({"x": y, "b": Lender(b)})["y"]
    assert np.array_equal(again, 2 * y + 1)
    assert copies == []


@pytest.mark.parametrize(
    "given",
    [
        pytest.param(np.arange(33, dtype="float32")[1:].reshape(4, 8) - 1, id="anywhere"),
        pytest.param(np.asfortranarray(X), id="by columns"),
        pytest.param(np.repeat(X, 2, axis=1)[:, ::2], id="in steps"),
        pytest.param(Lender(np.asfortranarray(X)), id="by columns, of another library"),
    ],
)
def test_other_arrays_are_copied(library: Path, given: Any, copies: list[Any]) -> None:
    assert np.array_equal(Session(library).run({"x": given, "b": aligned(B)})["y"], 2 * X + 1)
    assert len(copies) <= 1  # `anywhere` may be aligned by chance


def test_a_read_only_array_is_copied(library: Path, copies: list[Any]) -> None:
    x = aligned(X)
    x.flags.writeable = False
    assert np.array_equal(Session(library).run({"x": x, "b": aligned(B)})["y"], 2 * X + 1)
    assert len(copies) == 1


def test_who_writes_to_an_output_changes_neither_inputs_nor_weights(library: Path) -> None:
    one, b = Session(library), aligned(B)
    for _ in range(3):
        outputs = one.run({"x": aligned(X), "b": b})
        assert np.array_equal(outputs["same"], B)
        assert np.array_equal(outputs["weight"], np.arange(8))
        for output in outputs.values():
            output[...] = -1
    assert np.array_equal(b, B)


@pytest.mark.parametrize(
    ("inputs", "words"),
    [
        ({"x": X}, "also needs input b (float32 (8))"),
        ({"x": X, "b": B, "z": B}, "has no input z; its inputs are x, b"),
        ({"x": X, "z": B}, "has no input z and also needs input b"),
        ({"x": X[:3], "b": B}, "is float32 (3, 8); float32 (4, 8) is wanted"),
        ({"x": X.astype("float64"), "b": B}, "is float64 (4, 8); float32 (4, 8) is wanted"),
        ({"x": X.astype(">f4"), "b": B}, "cannot be used"),
        ({"x": X.tolist(), "b": B}, "input x of .* is a list; an array is wanted: float32"),
        ({"x": None, "b": B}, "is a NoneType"),
        ({"x": Lender(X, (2, 0)), "b": B}, "not in this CPU's memory"),
    ],
)
def test_what_a_library_does_not_take_is_said_with_what_it_takes(
    library: Path, inputs: dict[str, Any], words: str
) -> None:
    pattern = words if ".*" in words else "".join(f"\\{c}" if c in "()" else c for c in words)
    with pytest.raises(InputRefused, match=pattern):
        Session(library).run(inputs)


def test_sessions_of_a_file_and_of_its_copy_share_what_is_loaded(library: Path, tmp_path: Path) -> None:
    copy = shutil.copy(library, tmp_path / "copy.so")
    one, other = Session(library), Session(library)
    shared = Session(copy, share_weights_with=one)
    assert one._library is other._library is shared._library
    assert Session(copy)._library is not one._library


def test_a_different_file_shares_nothing(library: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.so"
    other.write_bytes(library.read_bytes() + b"\0")
    with pytest.raises(OptionRefused, match="differ"):
        Session(other, share_weights_with=Session(library))


def test_a_file_that_was_replaced_is_loaded_anew(library: Path, tmp_path: Path) -> None:
    path = Path(shutil.copy(library, tmp_path / "model.so"))
    first = Session(path)
    path.unlink()
    shutil.copy(library, path)
    os.utime(path, (1, 1))
    second = Session(path)
    assert first._library is not second._library
    inputs = {"x": X, "b": B}
    assert np.array_equal(first.run(inputs)["y"], second.run(inputs)["y"])


def test_threads_and_cores_are_the_pools_and_all_sessions_share_them(
    library: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = shutil.copy(library, tmp_path / "model.so")
    loaded, calls = Session(path)._library, []
    monkeypatch.setattr(
        loaded, "_set_threads", lambda count, mask, size: calls.append((count, mask, size.value))
    )
    core = max(os.sched_getaffinity(0))
    one = Session(path, affinity=[core])
    mask = sum(1 << core % 8 + 8 * byte for byte in [core // 8])
    assert [(count, int.from_bytes(given, "little"), size % 8) for count, given, size in calls] == [
        (1, mask, 0)
    ]
    assert np.array_equal(one.run({"x": X, "b": B})["y"], 2 * X + 1)
    assert Session(path, threads=1, affinity=[core])._library is loaded
    with pytest.raises(OptionRefused, match="share its threads"):
        Session(path, threads=2)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"threads": 0}, "must be 1 to 256"),
        ({"threads": 257}, "must be 1 to 256"),
        ({"affinity": []}, "this process may use"),
        ({"affinity": [100_000]}, "this process may use"),
    ],
)
def test_options_that_cannot_be_met_are_refused(library: Path, options: dict[str, Any], words: str) -> None:
    with pytest.raises(OptionRefused, match=words):
        Session(library, **options)


def test_many_threads_call_at_once(library: Path) -> None:
    one, wrong = Session(library), []

    def call(number: int) -> None:
        x = aligned(X + number)
        wrong.extend(
            turn for turn in range(200) if not np.array_equal(one.run({"x": x, "b": B})["y"], 2 * x + 1)
        )

    callers = [threading.Thread(target=call, args=(number,)) for number in range(10)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    assert wrong == []
    assert 1 <= len(one._idle) <= 10


class TestFreeDimensions:
    """What a library with free dimensions takes; a stand-in for its function returns the inputs."""

    INPUTS = (
        {"name": "ids", "dtype": "int64", "shape": ["batch", "length"]},
        {"name": "past", "dtype": "float32", "shape": ["batch", "before", 2]},
        {"name": "mask", "dtype": "float32", "shape": ["batch", "before + length"]},
    )

    @pytest.fixture
    def free(self, library: Path, monkeypatch: pytest.MonkeyPatch) -> Session:
        ranges = {"batch": [1, 4], "length": [1, 8], "before": [0, 16]}
        read = session.read_library_file(library)
        meta = METADATA | {"inputs": self.INPUTS}
        specs = tuple(TensorInfo(s["name"], s["dtype"], tuple(s["shape"])) for s in self.INPUTS)
        file = replace(read, meta=meta, inputs=specs, outputs=specs, ranges=ranges)
        monkeypatch.setattr(session, "read_library_file", lambda _path: file)
        one = Session(library)
        one._idle = [lambda *given: tensors.tvm_ffi.convert(list(given))]
        one._shared_outputs = frozenset()
        return one

    @staticmethod
    def given(batch: int, length: int, before: int, mask: int) -> dict[str, Any]:
        return {
            "ids": np.zeros((batch, length), "int64"),
            "past": np.zeros((batch, before, 2), "float32"),
            "mask": np.zeros((batch, mask), "float32"),
        }

    @pytest.mark.parametrize("sizes", [(1, 1, 0, 1), (4, 8, 16, 24), (2, 3, 5, 8)])
    def test_sizes_in_the_ranges_are_taken(self, free: Session, sizes: tuple[int, ...]) -> None:
        for _ in range(2):
            assert free.run(self.given(*sizes))["mask"].shape == (sizes[0], sizes[3])

    @pytest.mark.parametrize(
        ("change", "words"),
        [
            ({"length": 9, "mask": 11}, "length is 9, and .* takes 1 to 8"),
            ({"batch": 5}, "batch is 5, and .* takes 1 to 4"),
            ({"mask": 6}, r"has before \+ length = 6; other inputs make it 5"),
        ],
    )
    def test_sizes_outside_are_refused(self, free: Session, change: dict[str, int], words: str) -> None:
        sizes = {"batch": 2, "length": 3, "before": 2, "mask": 5} | change
        with pytest.raises(InputRefused, match=words):
            free.run(self.given(**sizes))

    def test_inputs_agree_on_a_dimension(self, free: Session) -> None:
        inputs = self.given(2, 3, 2, 5) | {"past": np.zeros((1, 2, 2), "float32")}
        with pytest.raises(InputRefused, match=r"input past of .* has batch = 1; other inputs make it 2"):
            free.run(inputs)

    def test_a_rank_and_a_fixed_size_are_checked(self, free: Session) -> None:
        for shape in ((2, 2), (2, 2, 3)):
            with pytest.raises(InputRefused, match=r"float32 \(batch, before, 2\) is wanted"):
                free.run(self.given(2, 3, 2, 5) | {"past": np.zeros(shape, "float32")})
