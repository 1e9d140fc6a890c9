"""The graph compiler makes the tasks that it made before: schedules that were measured still match."""

import json

import pytest

from benchmarks.networks.quantised import QUANTISED
from benchmarks.task_keys import CASES, FROZEN, task_keys

SMALL = {"mlp", "recommender", "squeeze", *QUANTISED}


@pytest.mark.parametrize(("network", "target"), [case for case in CASES if case[0] in SMALL])
def test_small_networks_have_the_tasks_that_were_frozen(network: str, target: str) -> None:
    assert task_keys(network, target) == json.loads(FROZEN.read_text())[network][target]


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize(("network", "target"), [case for case in CASES if case[0] not in SMALL])
def test_all_networks_have_the_tasks_that_were_frozen(network: str, target: str) -> None:
    assert task_keys(network, target) == json.loads(FROZEN.read_text())[network][target]
