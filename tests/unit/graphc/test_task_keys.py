"""The graph compiler makes the tasks that it made before: schedules that were measured still match."""

import json

import pytest

from benchmarks.task_keys import FROZEN, NETWORKS, TARGETS, task_keys

SMALL = ("mlp", "recommender", "squeeze")


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("network", SMALL)
def test_small_networks_have_the_tasks_that_were_frozen(network: str, target: str) -> None:
    assert task_keys(network, target) == json.loads(FROZEN.read_text())[network][target]


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("network", [name for name in NETWORKS if name not in SMALL])
def test_all_networks_have_the_tasks_that_were_frozen(network: str, target: str) -> None:
    assert task_keys(network, target) == json.loads(FROZEN.read_text())[network][target]
