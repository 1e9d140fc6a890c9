"""A few of many tasks are of every kind."""

from dataclasses import replace

from mallorn_research.replay.recording_file import select_every_operator
from research.tests.unit.replay.made_up import made_up

TASKS = [
    replace(made_up(4), name=name, op=op, flops=flops)
    for name, op, flops in [
        ("a", "conv", 9.0),
        ("b", "conv", 99.0),
        ("c", "softmax", 1.0),
        ("d", "conv", 5.0),
    ]
]


def test_operators_come_in_turn_the_largest_task_of_each_first() -> None:
    assert [task.name for task in select_every_operator(TASKS, 1)] == ["b"]
    assert [task.name for task in select_every_operator(TASKS, 2)] == ["b", "c"]
    assert [task.name for task in select_every_operator(TASKS, 3)] == ["a", "b", "c"]
    assert select_every_operator(TASKS, 9) == TASKS
