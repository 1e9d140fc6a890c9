"""The commands in sections and groups: what is shown, and names of earlier versions."""

import pytest
from typer.main import get_command

from mallorn.cli.main import JOB_COMMANDS, OLD_NAMES, SECTIONS, app
from tests.fixtures.answers import data, mallorn
from tests.fixtures.coordinator import OwnedRows


def test_alone_it_prints_every_section_with_one_line_a_command() -> None:
    printed = mallorn().output
    for title, names in SECTIONS.items():
        section = printed.partition(f"{title}:\n")[2].partition("\n\n")[0].splitlines()
        assert [line.split()[0] for line in section] == list(names)


def test_names_of_earlier_versions_are_not_shown_and_still_there() -> None:
    root = get_command(app)
    for name in OLD_NAMES:
        command = root.get_command(None, name)  # type: ignore[attr-defined]
        assert command.hidden, name
    assert not set(OLD_NAMES) & {name for names in SECTIONS.values() for name in names}


# All commands before there were groups.
BEFORE = (
    "tune submit jobs show tasks explain compare report watch pause resume cancel archive rm check models "
    "schedules records record dataset costmodels evaluate pretrain batch devices workers compile bench "
    "profile passes up serve worker control tracker device keys owners audit doctor migrate"
)


@pytest.mark.parametrize("name", BEFORE.split())
def test_every_name_of_the_first_release_is_taken(name: str) -> None:
    assert mallorn(name, "--help").exit_code == 0


MOVED = {
    ("records",): ("dataset", "records"),
    ("audit",): ("owners", "audit"),
    ("tasks",): ("jobs", "tasks"),
    ("show",): ("jobs", "show"),
    ("jobs", "--state", "tuning"): ("jobs", "list", "--state", "tuning"),
    ("models",): ("models", "list"),
    ("devices",): ("devices", "list"),
    ("keys",): ("keys", "list"),
    ("owners",): ("owners", "list"),
}


@pytest.mark.usefixtures("named_coordinator")
@pytest.mark.parametrize("old", MOVED, ids=" ".join)
def test_an_old_name_says_the_same_as_the_new_one(owned: OwnedRows, old: tuple[str, ...]) -> None:
    before, after = mallorn(*old, "--json"), mallorn(*MOVED[old], "--json")
    assert [list(row) for row in data(before)] == [list(row) for row in data(after)]


@pytest.mark.parametrize(
    ("old", "new"), [("evaluate", "costmodels"), ("pretrain", "costmodels"), ("rm", "jobs")]
)
def test_an_old_command_has_the_options_of_the_new_one(old: str, new: str) -> None:
    before, after = mallorn(old, "--help").stdout, mallorn(new, old, "--help").stdout
    assert before.partition("\n")[2] == after.partition("\n")[2]


def test_a_misspelt_command_of_a_group_is_named() -> None:
    result = mallorn("jobs", "shwo")
    assert result.exit_code == 2
    assert "No such command 'shwo'" in result.stderr


@pytest.mark.parametrize("name", JOB_COMMANDS)
def test_what_is_done_with_jobs_calls_one_a_job(name: str) -> None:
    usage = mallorn("jobs", name, "--help").stdout.partition("\n")[0]
    assert name == "list" or "JOB" in usage
