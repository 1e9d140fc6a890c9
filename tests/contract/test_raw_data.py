"""Every raw file in docs/results says which commit of this history, which host and which versions made it."""

import json
import re
import subprocess
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, Final

import pytest

from tests.fixtures.command_line import ROOT

RESULTS: Final = ROOT / "docs" / "results"
FILES: Final = sorted(
    str(path.relative_to(RESULTS)) for path in RESULTS.rglob("*") if path.suffix in (".json", ".jsonl")
)
KEYS: Final = {
    "commit": {"commit", "code"},
    "host": {"host", "machine", "cpu", "device"},
    "versions": {"versions", "packages", "version", "python", "tvm"},
}
COMMIT: Final = re.compile(r"[0-9a-f]{7,40}")
#: Files whose origin a note tells in place of the file. The number may only fall.
MOST_NOTED: Final = 95


def values(raw: Any, keys: set[str], depth: int = 5) -> Iterator[Any]:
    """What stands under one of the keys, however deep."""
    if isinstance(raw, dict):
        for key, value in raw.items():
            if key in keys and value:
                yield value
            elif depth:
                yield from values(value, keys, depth - 1)
    elif isinstance(raw, list) and depth:
        for value in raw:
            yield from values(value, keys, depth - 1)


@cache
def read(file: str) -> Any:
    text = (RESULTS / file).read_text()
    return json.loads(text) if file.endswith(".json") else [json.loads(line) for line in text.splitlines()]


@cache
def history() -> frozenset[str]:
    """Every commit that led to this one; empty where the sources are no whole clone."""

    def git(*args: str) -> str:
        return subprocess.run(("git", *args), cwd=ROOT, capture_output=True, text=True, check=False).stdout

    whole = git("rev-parse", "--is-shallow-repository").strip() == "false"
    return frozenset(git("log", "--format=%H").split()) if whole else frozenset()


def lacks(file: str) -> set[str]:
    """What a raw file does not say of its origin."""
    missing = {name for name, keys in KEYS.items() if next(values(read(file), keys), None) is None}
    named = [text for text in values(read(file), KEYS["commit"]) if isinstance(text, str)]
    commits = [COMMIT.match(text) for text in named]
    known = {commit[:length] for commit in history() for length in {len(one[0]) for one in commits if one}}
    if any(one is None or one[0] not in known for one in commits):
        missing.add("history")
    return missing


@cache
def noted() -> dict[str, set[str]]:
    """What the list of origins says in place of each file."""
    found: dict[str, set[str]] = {}
    for origin in tomllib.loads((RESULTS / "origins.toml").read_text())["origin"]:
        assert origin["note"]
        for pattern in origin["files"]:
            matching = {str(path.relative_to(RESULTS)) for path in RESULTS.glob(pattern)}
            assert matching, f"{pattern} is no raw file any more"
            for file in matching:
                found.setdefault(file, set()).update(origin["lacks"])
    return found


@pytest.mark.parametrize("file", FILES)
def test_a_raw_file_names_its_commit_its_host_and_its_versions(file: str) -> None:
    if not history():
        pytest.skip("the sources are no whole clone")
    assert lacks(file) <= noted().get(file, set())


def test_the_list_of_other_origins_only_shrinks() -> None:
    if not history():
        pytest.skip("the sources are no whole clone")
    needed = {file for file in noted() if lacks(file)}
    assert len(needed) <= MOST_NOTED


@pytest.mark.parametrize(
    ("raw", "missing"),
    [
        ({"commit": "0" * 40, "host": {"cores": 2}, "versions": {"a": "1"}}, {"history"}),
        ({"host": {"cores": 2}, "versions": {"a": "1"}}, {"commit"}),
        ({"rows": [{"commit": "", "machine": "x", "python": "3"}]}, {"commit"}),
        ({"figure": 1.0}, {"commit", "host", "versions"}),
    ],
)
def test_a_file_without_an_origin_is_found(
    raw: Any, missing: set[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "made_up.json").write_text(json.dumps(raw))
    monkeypatch.setattr("tests.contract.test_raw_data.RESULTS", tmp_path)
    read.cache_clear()
    assert lacks("made_up.json") == missing
    read.cache_clear()
