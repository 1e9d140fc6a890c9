"""What other users named reaches a terminal literally: no cursor moves, no title, no markup."""

import io
import re
from collections.abc import Callable
from typing import Any, Final

import pytest
from sqlalchemy import update

from mallorn.cli.terminal import output
from mallorn.client.progress_lines import print_line
from mallorn.db.repositories.devices import Devices, SeenDevice
from mallorn.db.tables import Device, Job, Model, Task, Workload
from mallorn.wording.format_values import Column
from tests.fixtures.answers import mallorn
from tests.fixtures.coordinator import Coordinator, OwnedRows
from tests.fixtures.schedules import promote

# Sets the title, moves up, turns the direction, moves by an 8-bit code; markup of rich; an emoji's name.
HOSTILE: Final = "evil\x1b]0;title\x07\x1b[2A\u202e\x9b2J\r[red]:bomb:[/nothing]"
CONTROL: Final = re.compile(
    r"[^\n\t\x20-\x7e\xa0-\u061b\u061d-\u200d\u2010-\u2027\u202f-\u2065\u206a-\uffff]"
)
COMMANDS: Final = (
    "jobs",
    "show JOB",
    "jobs tasks JOB",
    "jobs explain JOB",
    "jobs compare JOB JOB",
    "watch JOB",
    "models",
    "schedules",
    "schedules find --op matmul",
    "devices",
    "workers",
    "dataset records --job JOB",
    "dataset stats",
    "keys",
    "owners",
    "owners audit",
    "costmodels",
)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def hostile(named_coordinator: Coordinator, owned: OwnedRows, monkeypatch: pytest.MonkeyPatch) -> OwnedRows:
    """A coordinator whose owner, job, model, device, tasks and audited paths have a hostile name."""
    monkeypatch.setenv("MALLORN_API_KEY", named_coordinator.new_key(HOSTILE).key)
    seen = SeenDevice(HOSTILE, owned.target_id, "far", "host", 2, "0.27.0")
    device_id = owned.write(lambda session: Devices(session).record_seen(seen))
    owned.measured_round(owned.ok(0, 7.5, device_id=device_id), owned.failed(1))
    promote(owned, "w1", 30.0)
    named: Any = {Model: ("owner", "name"), Job: ("owner", "name"), Task: ("name",), Workload: ("name", "op")}
    for table, columns in {**named, Device: ("host_class",)}.items():
        values = dict.fromkeys(columns, HOSTILE)
        owned.write(lambda session, t=table, v=values: session.execute(update(t).values(v)))
    owned.write(lambda session: session.execute(update(Job).values(state="cancelled", ended_because=HOSTILE)))
    named_coordinator.ask(named_coordinator.new_key(HOSTILE).key, "POST", "/jobs/%1b%5d0;x%07/pause")
    return owned


def test_no_command_prints_a_control_character_of_a_name(hostile: OwnedRows) -> None:
    found, printed = {}, 0
    for command in COMMANDS:
        result = mallorn(*command.replace("JOB", hostile.job_id).split())
        assert "Traceback" not in result.stderr, command
        assert result.exit_code != 2, (command, result.stderr)
        text = result.stdout + result.stderr
        printed += "evil" in text
        found[command] = CONTROL.findall(text)
    assert {command: characters for command, characters in found.items() if characters} == {}
    assert printed >= 10, "the commands print the names"


def test_a_terminal_gets_only_our_own_escapes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "dumb")
    acts: dict[str, Callable[[], None]] = {
        "stdout": lambda: output.stdout().print(HOSTILE),
        "a table": lambda: output.print_rows([HOSTILE], [Column("NAME", str)], as_json=False, empty=""),
        "an error": lambda: output.print_error(HOSTILE, HOSTILE),
        "a note": lambda: output.print_note(HOSTILE),
        "progress": lambda: print_line(HOSTILE),
    }
    for name, act in acts.items():
        terminal = Terminal()
        monkeypatch.setattr("sys.stdout", terminal)
        monkeypatch.setattr("sys.stderr", terminal)
        act()
        assert CONTROL.findall(terminal.getvalue()) == [], name
        shown = terminal.getvalue().replace("\n", "")
        assert r"\x1b]0;title" in shown, name
        assert r"\x1b[2A\u202e\x9b2J" in shown, name
        assert "[red]:bomb:[/nothing]" in shown, name
