"""What the product knows of networks before any job is what the benchmark reads in docs/results."""

import json
from typing import Any

import pytest

from benchmarks.tuning_gain import (
    RESULTS,
    Foretold,
    Network,
    figures_of,
    foretell,
    headline,
    read_networks,
    rounded,
    trial_sec,
)
from mallorn.workers.finish.predict_tuning_gain import EARLIER, TRIAL_SEC


@pytest.fixture(scope="module")
def networks() -> list[Network]:
    return read_networks()


@pytest.fixture(scope="module")
def kept() -> dict[str, Any]:
    return dict(json.loads((RESULTS / "tuning_gain.json").read_text()))


def test_the_product_knows_what_the_benchmark_read(networks: list[Network]) -> None:
    assert [(gap.initial_gap, gap.closed_gap) for gap in EARLIER] == rounded(
        [network.gap for network in networks]
    )
    assert trial_sec() == pytest.approx(TRIAL_SEC, abs=0.005)


def test_the_kept_headline_is_that_of_the_kept_predictions(
    networks: list[Network], kept: dict[str, Any]
) -> None:
    assert headline([Foretold(**row) for row in kept["raw"]]) == kept["headline"]
    told = [each for network in networks for each in foretell(network, networks)]
    assert headline(told) == kept["headline"]
    alone = [one for one in told if not one.earlier_jobs]
    assert figures_of(alone) == pytest.approx(kept["figures"]["all, without earlier jobs"])


def test_no_network_foretells_itself(networks: list[Network]) -> None:
    densenet = next(network for network in networks if network.model == "densenet")
    worse = [network for network in networks if network.model != "densenet"]
    assert list(foretell(densenet, networks)) == list(foretell(densenet, worse))


def test_gains_are_those_of_whole_models_timed_in_turn(networks: list[Network]) -> None:
    found = {network.model: network.found for network in networks if network.machine == "znver5"}
    assert found["densenet"] == pytest.approx(1 - 1 / 1.504, abs=0.001)
    assert found["mobilenetv2"] == pytest.approx(1 - 1 / 1.189, abs=0.001)
