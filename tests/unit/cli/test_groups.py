"""The commands in sections and groups: what is shown, and the short forms of lists."""

import pytest

from mallorn.cli.main import JOB_COMMANDS, SECTIONS
from tests.fixtures.answers import data, mallorn
from tests.fixtures.coordinator import OwnedRows


def test_alone_it_prints_every_section_with_one_line_a_command() -> None:
    printed = mallorn().output
    for title, names in SECTIONS.items():
        section = printed.partition(f"{title}:\n")[2].partition("\n\n")[0].splitlines()
        assert [line.split()[0] for line in section] == list(names)


SHORT = {
    ("show",): ("jobs", "show"),
    ("jobs", "--state", "tuning"): ("jobs", "list", "--state", "tuning"),
    ("models",): ("models", "list"),
    ("devices",): ("devices", "list"),
    ("keys",): ("keys", "list"),
    ("owners",): ("owners", "list"),
}


@pytest.mark.usefixtures("named_coordinator")
@pytest.mark.parametrize("short", SHORT, ids=" ".join)
def test_a_short_form_says_the_same_as_the_long_one(owned: OwnedRows, short: tuple[str, ...]) -> None:
    printed, expected = mallorn(*short, "--json"), mallorn(*SHORT[short], "--json")
    assert [list(row) for row in data(printed)] == [list(row) for row in data(expected)]


def test_a_misspelt_command_of_a_group_is_named() -> None:
    result = mallorn("jobs", "shwo")
    assert result.exit_code == 2
    assert "No such command 'shwo'" in result.stderr


@pytest.mark.parametrize("name", JOB_COMMANDS)
def test_what_is_done_with_jobs_calls_one_a_job(name: str) -> None:
    usage = mallorn("jobs", name, "--help").stdout.partition("\n")[0]
    assert name == "list" or "JOB" in usage
