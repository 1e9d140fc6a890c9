"""One digest names the code that generates code."""

import platform
from collections.abc import Iterator, Mapping
from pathlib import Path
from unittest.mock import Mock

import pytest

from mallorn.core.targets import NATIVE
from mallorn.kinds.cuda.kind import Cuda
from mallorn.workers.host import code_digest as code
from mallorn.workers.host.linker import NoLinker


@pytest.fixture(autouse=True)
def _asked_anew() -> Iterator[None]:
    for cached in (caches := (code.code_parts, code._linker_version)):
        cached.cache_clear()
    yield
    for cached in caches:
        cached.cache_clear()


def _parts(monkeypatch: pytest.MonkeyPatch, parts: Mapping[str, str]) -> str:
    monkeypatch.setattr(code, "code_parts", lambda: parts)
    return code.code_digest()


def test_it_is_the_same_when_asked_again_and_names_tvm_sources_compiler_and_linker() -> None:
    first = code.code_digest()
    code.code_parts.cache_clear()
    assert code.code_digest() == first
    assert {
        "mallorn.graphc",
        "mallorn.workers.tvm",
        "mallorn.workers.features",
        "apache-tvm",
        "apache-tvm-ffi",
    } <= code.code_parts().keys()
    assert {"compiler", "linker"} <= code.code_parts().keys()
    assert code.current_code_name() == f"{code.TVM_VERSION}+{first}"
    assert code.current_builder_name().startswith(f"{code.current_code_name()}.")


@pytest.mark.parametrize("part", ["mallorn.graphc", "mallorn.workers.tvm", "apache-tvm"])
def test_each_part_of_the_code_changes_it_and_the_builders_name(
    part: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    parts = dict(code.code_parts())
    digest, builder = code.code_digest(), code.current_builder_name()
    assert _parts(monkeypatch, parts | {part: "another"}) != digest
    assert code.current_builder_name() != builder


@pytest.mark.parametrize(
    ("tool", "changed"),
    [("compiler", {NATIVE, Cuda.name}), ("linker", {NATIVE, Cuda.name}), ("nvcc", {Cuda.name})],
)
def test_another_tool_is_another_builder_for_what_it_builds_and_makes_the_same_tasks(
    tool: str, changed: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    parts = dict(code.code_parts()) | {"nvcc": "nvcc 13"}
    digest = _parts(monkeypatch, parts)
    names = {toolchain: code.current_builder_name(toolchain) for toolchain in (NATIVE, Cuda.name)}
    assert len({*names.values()}) == 2
    assert _parts(monkeypatch, parts | {tool: "another"}) == digest
    assert {each for each in names if code.current_builder_name(each) != names[each]} == changed


def test_a_builder_has_the_code_that_its_name_says() -> None:
    digest = code.code_digest()
    assert code.is_code_of(digest, code.current_builder_name())
    assert code.is_code_of("abc", "0.27.0+abc"), "as workers of 0.1.0 name themselves"
    assert not code.is_code_of(digest, "0.27.0+abc")
    assert not code.is_code_of(digest, "0.27.0")


def test_a_linker_of_another_version_changes_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "ld.lld"
    seen = set()
    for version in ("18.1", "19.0"):
        program.write_text(f"#!/bin/sh\necho LLD {version}\necho more\n")
        program.chmod(0o755)
        monkeypatch.setattr(code, "link_command", lambda _: (str(program), "-shared"))
        code._linker_version.cache_clear()
        code.code_parts.cache_clear()
        assert code.code_parts()["linker"] == f"ld.lld LLD {version}"
        seen.add(code.current_builder_name())
    assert len(seen) == 2


def test_a_host_without_compiler_has_a_digest_too(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(code, "find_c_compiler", lambda: str(tmp_path / "gone"))
    code.code_parts.cache_clear()
    assert code.code_parts()["compiler"] == code.ABSENT


def test_the_linker_for_another_instruction_set_names_only_its_builder(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    other = "x86_64" if platform.machine() == "aarch64" else "aarch64"
    before = {toolchain: code.current_builder_name(toolchain) for toolchain in (NATIVE, Cuda.name, other)}
    own = code._linker_version(NATIVE)
    monkeypatch.setattr(code, "_linker_version", lambda name: "another" if name == other else own)
    after = {toolchain: code.current_builder_name(toolchain) for toolchain in before}
    assert [toolchain for toolchain in before if before[toolchain] != after[toolchain]] == [other]
    assert code.current_builder_name(platform.machine()) == before[NATIVE]


def test_a_host_that_cannot_link_for_an_instruction_set_still_names_its_builder(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(code, "link_command", Mock(side_effect=NoLinker))
    assert code._linker_version("riscv64") == code.ABSENT
