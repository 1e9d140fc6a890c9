"""What the page about the replay lab says of jobs without a device, typed in an empty home.

In `make test` such a job goes through a running service (test_bad_input, with free dimensions bound), and
`mallorn tune` starts a service in an empty home for others (test_interrupt).
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fixtures.service import tiny_network
from tests.fixtures.transcript import Terminal, Typed


@pytest.fixture
def terminal(tmp_path: Path) -> Iterator[Terminal]:
    (tmp_path / "tiny.onnx").write_bytes(tiny_network())
    terminal = Terminal(tmp_path)
    yield terminal
    terminal.close()


@pytest.mark.long
def test_the_first_command_in_an_empty_home_may_be_a_job_that_only_pretends(terminal: Terminal) -> None:
    options = "-o measurer=simulated -o simulated.device_sec=0 -o simulated.failure_rate=0.02"
    typed = terminal.type(Typed((f"mallorn tune tiny.onnx --trials 12 {options} --out made-up",), (), {}))
    printed = "\n".join(typed.printed)
    assert "measured by simulated, on no device" in printed
    assert (terminal.home / "made-up" / "manifest.json").is_file()
