"""Models that need torch are known without it, and say what to install."""

import sys

import pytest

from mallorn.core.errors import InvalidRequest, Unavailable
from mallorn.core.installation import RESEARCH, pip_install_command
from mallorn.core.registry import resolve
from mallorn.costmodels.views import VIEWS
from mallorn.costmodels.xgboost_models import XGBoost
from mallorn_research.costmodels.adapted_networks import MoA


@pytest.mark.parametrize("name", ["gnn", "mtl-tlp", "tlp", "tree-lstm"])
def test_without_torch_a_model_says_what_to_install_when_it_is_made(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    kind = resolve("cost_model", name)
    assert kind.view in VIEWS
    with pytest.raises(Unavailable, match=f"{name} needs torch") as raised:
        kind()
    assert pip_install_command("torch", RESEARCH) in raised.value.hint


def test_without_torch_momentum_without_a_base_says_so_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(Unavailable, match="tlp needs torch"):
        resolve("cost_model", "moa")()


def test_momentum_needs_a_base_with_layers() -> None:
    with pytest.raises(InvalidRequest, match="XGBoost has no layers") as raised:
        MoA.from_base(XGBoost())
    assert "residual" in raised.value.hint
