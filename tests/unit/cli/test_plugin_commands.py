"""Commands of installed packages: listed in their group, called, and refused where they are broken."""

from collections.abc import Mapping

import pytest

from mallorn.cli.terminal import lazy_commands
from mallorn.core import registry
from tests.fixtures.answers import mallorn, refused

PLUGINS: Mapping[str, str] = {
    "greet": f"{__name__}:greet",
    "dataset.count": f"{__name__}:greet",
    "broken": "no_such_module:command",
}


def greet(name: str) -> None:
    """Greet somebody."""
    print(f"Hello {name}")


@pytest.fixture(autouse=True)
def installed(monkeypatch: pytest.MonkeyPatch) -> None:
    def find_plugins(seam: str) -> Mapping[str, str]:
        return PLUGINS if seam == "commands" else {}

    monkeypatch.setattr(registry, "find_plugins", find_plugins)
    monkeypatch.setattr(lazy_commands, "find_plugins", find_plugins)


@pytest.mark.parametrize("words", [("greet",), ("dataset", "count")])
def test_a_command_of_a_package_is_called(words: tuple[str, ...]) -> None:
    assert mallorn(*words, "Ada").stdout == "Hello Ada\n"


def test_help_lists_commands_of_packages_also_broken_ones() -> None:
    printed = mallorn("--help").stdout
    assert "Of other packages:" in printed
    assert "greet   Greet somebody." in printed
    assert "broken  Not available:" in printed
    assert "count" in mallorn("dataset", "--help").stdout


def test_a_broken_command_says_why() -> None:
    refused(mallorn("broken", "--any", "thing"), "the command broken cannot be imported")


def test_a_command_of_research_says_how_to_install_it() -> None:
    refused(mallorn("record", "net.onnx"), "the command record needs mallorn-research")
