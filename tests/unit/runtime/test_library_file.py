"""What a library says of itself is read, and what this machine cannot run is refused, before it is loaded."""

import io
import json
import os
import platform
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import mallorn_runtime
from mallorn.core.version import VERSION
from mallorn.graphc.export import library_metadata
from mallorn_runtime import LibraryRefused, Session, TensorInfo, library_file, read_library_file
from tests.fixtures.command_line import ROOT, clean_environment
from tests.fixtures.elf_files import AARCH64, METADATA, X86_64, elf_bytes, write_library_file
from tests.fixtures.kept import Kept

HERE = X86_64 if platform.machine() == "x86_64" else AARCH64
CONTROL = "\x1b[2J\x1b]0;title\x07"
OTHER = AARCH64 if HERE == X86_64 else X86_64


def refusal(path: Path) -> str:
    with pytest.raises(LibraryRefused) as raised:
        Session(path)
    assert str(raised.value).count("\n") == 0
    return str(raised.value)


def test_names_types_shapes_and_ranges_are_read(tmp_path: Path) -> None:
    spec = {"name": "x", "dtype": "int64", "shape": ["batch", 3]}
    path = write_library_file(tmp_path / "model.so", inputs=[spec], ranges={"batch": [1, 8]}, job="j1")
    library = read_library_file(path)
    assert library.inputs == (TensorInfo("x", "int64", ("batch", 3)),)
    assert library.outputs == (TensorInfo("y", "float32", (4, 16)),)
    assert library.ranges == {"batch": (1, 8)}
    assert library.meta["job"] == "j1"


# What a file is, or its metadata say, that this machine cannot run: tests/kept/refused-libraries.txt.
CONTENTS = {
    "empty": b"",
    "a script": b"#!/bin/sh\n",
    "32 bits": b"\x7fELF\x01\x01" + bytes(90),
    "zeros behind the magic": b"\x7fELF\x02\x01" + bytes(90),
    "its last byte is missing": elf_bytes(b"{}")[:-1],
    "without the section": elf_bytes(b"{}", section=b".mallorn2"),
}
METADATA_CHANGES: dict[str, dict[str, Any]] = {
    "features that the processor lacks": {"cpu_features": ["avx2", "avx512f", "amx_tile"]},
    "another device": {"target": {"kind": "cuda"}},
    "another format": {"format": 2},
}


def test_what_this_machine_cannot_run_is_refused_in_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kept: Kept
) -> None:
    (tmp_path / "cpuinfo").write_text("processor\t: 0\nflags\t\t: fpu avx2 fma\nflags\t\t: fpu\n")
    monkeypatch.setattr(library_file, "PROCESSORS", tmp_path / "cpuinfo")
    path, texts = tmp_path / "model.so", {}
    for state, content in CONTENTS.items():
        path.write_bytes(content)
        texts[state] = refusal(path)
    for state, values in METADATA_CHANGES.items():
        texts[state] = refusal(write_library_file(path, HERE, **values))
    path.unlink()
    texts |= {"no file": refusal(path), "a folder": refusal(tmp_path)}
    os.mkfifo(path)
    texts["a pipe: nobody waits for a writer"] = refusal(path)
    kept("refused-libraries", {state: text.replace(str(tmp_path), "PLACE") for state, text in texts.items()})


def test_another_architecture_is_named(tmp_path: Path) -> None:
    words = refusal(write_library_file(tmp_path / "model.so", OTHER))
    assert words.endswith(f"and this machine is {platform.machine()}")


def test_a_library_without_code_is_refused_when_it_is_loaded(tmp_path: Path) -> None:
    assert "cannot be loaded" in refusal(write_library_file(tmp_path / "model.so", HERE))


@pytest.mark.parametrize(
    "change",
    [
        lambda meta: b"{",
        lambda meta: b"[" * 100_000,
        lambda meta: b"\xff\xfe",
        lambda meta: b"[]",
        lambda meta: json.dumps({name: value for name, value in meta.items() if name != "inputs"}).encode(),
        lambda meta: json.dumps(meta | {"inputs": [{"name": "x"}]}).encode(),
        lambda meta: json.dumps(meta | {"ranges": {"n": [1]}}).encode(),
        lambda meta: json.dumps(meta | {"target": "llvm"}).encode(),
        lambda meta: json.dumps(meta | {"threads": float("inf")}).encode(),
        lambda meta: json.dumps(meta | {"ranges": {"n": [float("inf"), 1]}}).encode(),
        lambda meta: json.dumps(meta | {"inputs": [{"name": "x", "dtype": "u8", "shape": [None]}]}).encode(),
        lambda meta: json.dumps(meta | {"inputs": [{"name": "x", "dtype": "u8", "shape": "abc"}]}).encode(),
    ],
)
def test_damaged_metadata_are_refused(change: Callable[[Any], bytes], tmp_path: Path) -> None:
    (tmp_path / "model.so").write_bytes(elf_bytes(change(METADATA), HERE))
    assert "metadata" in refusal(tmp_path / "model.so")


def test_names_of_sections_are_compared_without_copies() -> None:
    class Names(bytes):
        def __getitem__(self, index: Any) -> Any:
            raise AssertionError("4096 sections would copy 16 MiB each")

    class Content(io.BytesIO):
        def read(self, size: int | None = -1) -> bytes:
            return Names(super().read(size))

    content = elf_bytes(b"{}")
    assert library_file.find_section(Content(content), len(content)) == ("x86_64", b"{}")


@pytest.mark.parametrize("change", [{"target": {"kind": CONTROL}}, {"cpu_features": [CONTROL]}])
def test_refusals_have_no_control_characters_of_the_file(
    change: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "cpuinfo").write_text("flags\t\t: fpu\n")
    monkeypatch.setattr(library_file, "PROCESSORS", tmp_path / "cpuinfo")
    words = refusal(write_library_file(tmp_path / "model.so", HERE, **change))
    assert words.isprintable()
    assert "\\x1b[2J" in words


def describe(path: Path) -> str:
    """What `python -m mallorn_runtime FILE` prints."""
    command = [sys.executable, "-m", "mallorn_runtime", str(path)]
    env = clean_environment(PYTHONPATH=str(ROOT / "runtime"))
    return subprocess.run(command, env=env, capture_output=True, text=True, check=True).stdout


def test_a_description_on_a_terminal_has_no_control_characters_of_the_file(tmp_path: Path) -> None:
    spec = {"name": CONTROL, "dtype": CONTROL, "shape": [CONTROL]}
    path = write_library_file(tmp_path / "model.so", HERE, inputs=[spec], ranges={CONTROL: [1, 8]})
    assert all(line.isprintable() for line in describe(path).split("\n"))


def test_a_description_runs_no_code_of_the_library(tmp_path: Path) -> None:
    metadata = ", ".join(map(str, json.dumps(METADATA).encode()))
    (tmp_path / "model.c").write_text(
        f"""
#include <stdlib.h>
__attribute__((section(".mallorn"), used)) static const char metadata[] = {{{metadata}, 0}};
__attribute__((constructor)) static void start(void) {{ exit(3); }}
"""
    )
    library = tmp_path / "model.so"
    subprocess.run(["cc", "-shared", "-fPIC", tmp_path / "model.c", "-o", library], check=True)
    assert describe(library) == "input x: float32 (4, 16)\noutput y: float32 (4, 16)\n"


def test_the_package_has_the_version_of_mallorn_and_the_same_format() -> None:
    project = tomllib.loads((ROOT / "runtime" / "pyproject.toml").read_text())["project"]
    assert project["version"] == mallorn_runtime.__version__ == VERSION
    worker = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"][
        "worker"
    ]
    assert set(project["dependencies"]) < set(worker)
    assert library_metadata.FORMAT == library_file.FORMAT
    assert library_metadata.SECTION.encode() == library_file.SECTION
    header = (ROOT / "runtime" / "include" / "mallorn_runtime.h").read_text()
    assert f"kFormat = {library_file.FORMAT};" in header
