"""What is drawn is distinct, near real networks, allowed by its rules, and a valid network."""

from collections import Counter
from dataclasses import replace

import pytest

from mallorn.core.errors import InvalidRequest
from mallorn_research.generate.task_rule_file import MOST_CHANGES, OURS, Drawn, Kind, draw, read_rules
from mallorn_research.generate.tasks_as_onnx import BUILDERS, DIMENSIONS, network, only_patterns


@pytest.fixture(scope="module")
def kinds() -> list[Kind]:
    return read_rules(OURS, DIMENSIONS)


@pytest.fixture(scope="module")
def drawn(kinds: list[Kind]) -> list[Drawn]:
    return draw(kinds, 120, seed=0)


def test_tasks_are_distinct_and_of_every_kind_alike(kinds: list[Kind], drawn: list[Drawn]) -> None:
    assert len(set(drawn)) == 120
    assert Counter(task.kind for task in drawn) == {kind.name: 20 for kind in kinds}


def test_every_task_is_a_few_changes_from_one_of_a_real_network(
    kinds: list[Kind], drawn: list[Drawn]
) -> None:
    by_name = {kind.name: kind for kind in kinds}
    for task in drawn:
        kind, shape = by_name[task.kind], dict(task.shape)
        assert kind.allows(shape), task.name
        changed = [sum(shape[name] != size for name, size in seed.items()) for seed in kind.seeds]
        assert min(changed) <= MOST_CHANGES, task.name


def test_the_seed_decides(kinds: list[Kind]) -> None:
    assert draw(kinds, 30, seed=3) == draw(kinds, 30, seed=3)
    assert draw(kinds, 30, seed=3) != draw(kinds, 30, seed=4)


def test_a_kind_that_runs_dry_leaves_its_turns_to_the_others(kinds: list[Kind]) -> None:
    few = replace(kinds[0], changes={"stride": kinds[0].changes["stride"]})
    found = Counter(task.kind for task in draw([few, kinds[3]], 60, seed=0))
    assert found[few.name] <= 2 * len(few.seeds)
    assert sum(found.values()) == 60


def test_rules_that_lead_to_too_few_tasks_are_told(kinds: list[Kind]) -> None:
    few = replace(kinds[0], changes={"stride": kinds[0].changes["stride"]})
    with pytest.raises(InvalidRequest, match=r"lead to \d+ tasks, not to 1000") as caught:
        draw([few], 1000, seed=0)
    assert "--tasks" in caught.value.hint


def test_a_batch_of_tasks_is_one_valid_network_with_an_output_a_task(drawn: list[Drawn]) -> None:
    small = sorted(drawn, key=lambda task: dict(task.shape).get("channels", 0))[:8]
    model = network(small)
    assert len(model.graph.output) == len(small)
    assert all(output.type.tensor_type.shape.dim for output in model.graph.output)
    assert {task.build for task in small} <= set(BUILDERS)


def test_the_same_tasks_are_the_same_bytes(drawn: list[Drawn]) -> None:
    first, second = (network(drawn[3:6]).SerializeToString(deterministic=True) for _ in range(2))
    assert first == second


def test_only_what_was_drawn_is_to_be_tuned(drawn: list[Drawn]) -> None:
    assert only_patterns([task for task in drawn if task.kind in ("softmax", "dense")]) == [
        "*matmul*",
        "*softmax*",
    ]
