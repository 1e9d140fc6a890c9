"""The first hours of four kinds of reader, typed again: the pages show what is printed today.

`make hours` types them and writes what was printed into them.
"""

import shutil
import subprocess
from collections.abc import Iterator
from difflib import unified_diff
from pathlib import Path

import pytest

from tests.fixtures.command_line import ROOT
from tests.fixtures.transcript import UNHURRIED, Prose, Terminal, Typed, comparable, condensed, read, written

PAGES = ROOT / "docs" / "first-hours"
HOURS = ("engineer", "platform", "researcher", "bad-day")


@pytest.fixture
def terminal(tmp_path: Path) -> Iterator[Terminal]:
    """The empty home of somebody who has just installed Mallorn."""
    opened = Terminal(tmp_path, **UNHURRIED)
    yield opened
    opened.close()


def test_every_page_is_listed_and_typed() -> None:
    assert {page.stem for page in PAGES.glob("*.md")} == set(HOURS)
    index = (PAGES.parent / "README.md").read_text()
    assert all(f"(first-hours/{name}.md)" in index for name in HOURS)


def can_be_unshared() -> bool:
    """Whether this user may take away the network, or the room on a disk, for one command."""
    tools = shutil.which("unshare") and shutil.which("ip")
    command = ["unshare", "--map-root-user", "--net", "--mount", "ip", "link", "set", "lo", "up"]
    return bool(tools) and subprocess.run(command, capture_output=True).returncode == 0


@pytest.mark.long
@pytest.mark.parametrize("name", HOURS)
def test_an_hour_goes_as_its_page_shows(terminal: Terminal, name: str) -> None:
    if name == "bad-day" and not can_be_unshared():
        pytest.skip("this user may make no namespaces, or iproute2 is not installed")
    for part in read((PAGES / f"{name}.md").read_text()):
        if isinstance(part, Typed):
            expected, printed = comparable(part.printed), comparable(terminal.type(part).printed)
            difference = "\n".join(
                unified_diff(expected, printed, "the page", "printed now", lineterm="", n=9)
            )
            assert not difference, f"$ {part.code}\n{difference}"


SESSION = """# T

```console exit=1
$ one
>
> more
printed
$ two
and this
```

text
"""


def test_a_page_is_cut_into_what_is_typed_and_what_is_printed() -> None:
    one, two = (part for part in read(SESSION) if isinstance(part, Typed))
    assert one == Typed(("one", "", "more"), ("printed",), {})
    assert two == Typed(("two",), ("and this",), {"exit": 1})


def test_a_page_is_written_as_it_was_read() -> None:
    assert written(read(SESSION)) == SESSION
    assert Prose(("text",)) in read(SESSION)


def test_figures_and_moments_do_not_count() -> None:
    one = ("job 0a1b2c3d4e5f6071: 12 trials", "tuning  4/12 trials", "took 1.5 ms to 2e-3 s   0:30")
    other = ("job ffffffffffffffff: 1,008 trials", "took 90 us to 1,200.5 s   1:02:03")
    assert comparable(one) == comparable(other)
    assert comparable(("a word",)) != comparable(("another",))


def test_a_page_shows_the_last_line_of_each_state_of_a_job() -> None:
    lines = ("queued  0/2", "tuning  0/2", "tuning  1/2", "finishing  2/2", "done  2/2", "tuning  one")
    assert condensed(lines) == ("queued  0/2", "tuning  1/2", "finishing  2/2", "done  2/2", "tuning  one")
    assert comparable(condensed(lines)) == comparable(lines)


def test_what_walls_the_kernel_closes_does_not_count() -> None:
    whole = (
        "ok       sandbox      full: Landlock",
        "ok       tvm",
        "w  idle  now   full",
        'd  now  full  {"kind":1}',
    )
    less = (
        "missing  sandbox      without Landlock",
        "         next: mallorn doctor",
        "ok       tvm",
        "w  idle  now   partly",
        "w: sandbox without Landlock",
        'd  now  partly  {"kind":1}',
    )
    assert comparable(whole) == comparable(less)
    assert comparable(("a full disk",)) != comparable(("a partly disk",))
