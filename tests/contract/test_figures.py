"""What pages and commands say of figures is what the kept raw figures say."""

import json

from cli.costmodels import BEHIND
from tests.fixtures.command_line import ROOT

RESULTS = ROOT / "docs" / "results"
LEARN_NOTHING = {"draft", "random", "scrambled"}


def test_cost_models_that_are_called_behind_are_behind_on_every_split() -> None:
    splits = json.loads((RESULTS / "costmodels.json").read_text())["splits"].values()
    pairs = [{name: run["figures"]["pairwise"]["mean"] for name, run in split.items()} for split in splits]
    behind = {name for name in pairs[0] if all(split[name] < split["metaschedule"] for split in pairs)}
    assert behind - LEARN_NOTHING == BEHIND
