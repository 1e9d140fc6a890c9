"""Models that need torch are known without it, and say what to install."""

import sys

import pytest

from costmodels.views import VIEWS
from mallorn.core.errors import Unavailable
from mallorn.core.names import resolve


@pytest.mark.parametrize("name", ["gnn", "tlp", "tree-lstm"])
def test_without_torch_a_model_says_what_to_install_when_it_is_made(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    kind = resolve("cost_model", name)
    assert kind.view in VIEWS
    with pytest.raises(Unavailable, match=f"{name} needs torch") as raised:
        kind()
    assert "mallorn[neural]" in raised.value.hint
