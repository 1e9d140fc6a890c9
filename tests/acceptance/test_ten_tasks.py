"""Ten tasks of a newcomer, typed as docs/ten-tasks.md has them; tests/neural types the one for torch."""

import re
from typing import Final

import pytest

from benchmarks.ten_tasks import Task, commands
from tests.fixtures.ten_tasks import TASKS, Typed

# What the output of a task matches. Nothing was measured, so the rows are those that came with the wheel.
PRINTED: Final = {
    "Install": "all is there",
    "Tune": "model.so",
    "Call it from Python": r"array\(",
    "Call it from C++": "numbers",
    "Use the team's fleet": "model.onnx",
    "Check schedules in CI": "3 of 3 workloads of the compiled model come from a record",
    "Upgrade TVM": "there is nothing to tune",
    "Take your data away": r"[1-9][\d,]* measurements, (.|\n)*schedules",
    "Get help": "Tune a model:",
}


@pytest.mark.parametrize("title", PRINTED)
def test_a_newcomer_types_a_task(type_in_order: Typed, title: str) -> None:
    assert re.search(PRINTED[title], type_in_order(TASKS[title]))


def test_every_task_is_typed() -> None:
    assert len(TASKS) == 10
    assert {*PRINTED, *(title for title, task in TASKS.items() if task.needs)} == {*TASKS}


def test_programs_and_files_are_parts_of_the_commands_that_take_them() -> None:
    code = "cat > f <<'END'\na\nb\nEND\n\npython -c '\nimport x\n'\nmallorn check\n"
    assert list(commands(code)) == ["cat > f <<'END'", "python -c '", "mallorn check"]
    assert Task("t", code).commands == 3
