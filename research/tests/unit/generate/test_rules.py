"""Rule files: ours leads to enough tasks, and one that is wrong is refused before anything is drawn."""

from collections.abc import Callable
from pathlib import Path

import pytest

from mallorn.core.errors import InvalidRequest, NotFound
from mallorn_research.generate.task_rule_file import OURS, read_rules
from mallorn_research.generate.tasks_as_onnx import BUILDERS, DIMENSIONS

GOOD = """
version = 1
[[kind]]
name = "dense"
build = "dense"
seeds = [{ rows = 4, inner = 8, columns = 16 }]
where = ["rows >= 2"]
[kind.changes]
rows = ["rows * 2"]
"""
Write = Callable[[str], Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def go(text: str) -> Path:
        file = tmp_path / "rules.toml"
        file.write_text(text)
        return file

    return go


def test_our_own_rules_use_every_builder_and_allow_their_seeds() -> None:
    kinds = read_rules(OURS, DIMENSIONS)
    assert {kind.build for kind in kinds} == set(BUILDERS)
    assert all(len(kind.seeds) >= 3 for kind in kinds)


def test_a_kind_is_read_with_its_rules(write: Write) -> None:
    [kind] = read_rules(write(GOOD), DIMENSIONS)
    assert (kind.name, kind.dimensions) == ("dense", ("rows", "inner", "columns"))
    assert kind.changes["rows"][0].value(kind.seeds[0]) == 8
    assert not kind.allows({"rows": 1, "inner": 8, "columns": 16})


@pytest.mark.parametrize("size", [0, -4, 1 << 21])
def test_no_rule_allows_a_dimension_that_is_none(write: Write, size: int) -> None:
    [kind] = read_rules(write(GOOD), DIMENSIONS)
    assert not kind.allows({"rows": 4, "inner": size, "columns": 16})


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("version = 1", "version = 2", "have version 2, not 1"),
        ("version = 1", "", "have version None"),
        ("version = 1", "version =", "it is no TOML"),
        ('build = "dense"', 'build = "magic"', "there is no builder 'magic'"),
        ('build = "dense"', 'build = "softmax"', "differs in inner"),
        ("rows = 4,", "", "differs in rows"),
        ("rows = 4", "rows = 4.5", "seeds"),
        ("rows = 4", "rows = 1", "excludes the shape"),
        ("rows * 2", "lines * 2", "differs in lines"),
        ("rows * 2", "__import__('os')", "calls __import__ wrongly"),
        ("rows >= 2", "rows >=", "is no expression"),
        ('name = "dense"', 'name = "Dense 1"', "name"),
        ('name = "dense"', 'name = "dense"\nexec = "x"', "exec"),
    ],
)
def test_a_file_that_is_wrong_is_refused_in_a_sentence(write: Write, old: str, new: str, said: str) -> None:
    with pytest.raises(InvalidRequest, match=said) as caught:
        read_rules(write(GOOD.replace(old, new)), DIMENSIONS)
    assert len(caught.value.message.splitlines()) == 1
    assert caught.value.hint


def test_two_kinds_of_one_name_are_refused(write: Write) -> None:
    twice = GOOD + GOOD.partition("version = 1")[2]
    with pytest.raises(InvalidRequest, match="two kinds of tasks have the same name"):
        read_rules(write(twice), DIMENSIONS)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match=r"gone\.toml"):
        read_rules(tmp_path / "gone.toml", DIMENSIONS)
