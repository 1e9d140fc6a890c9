"""Names of versions of cost models."""

import pytest

from mallorn.core.cost_model_name import CostModelName, base_family
from mallorn.core.errors import InvalidRequest


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("operator:matmul/xgboost@3", CostModelName("operator:matmul", "xgboost", 3)),
        ("dynamic:matmul/2/forest@12", CostModelName("dynamic:matmul/2", "forest", 12)),
        ("base:conv2d/xgboost", CostModelName("base:conv2d", "xgboost")),
    ],
)
def test_a_name_is_read_as_it_is_written(text: str, name: CostModelName) -> None:
    assert CostModelName.parse(text) == name
    assert str(name) == text


@pytest.mark.parametrize(
    "text", ["", "xgboost", "/xgboost@1", "a/@1", "a/b@", "a/b@x", "a/b@-1", "a/b@1" + "0" * 10]
)
def test_anything_else_is_refused_with_the_way_to_write_it(text: str) -> None:
    with pytest.raises(InvalidRequest, match="does not name a cost model") as caught:
        CostModelName.parse(text)
    assert "FAMILY/NAME@VERSION" in caught.value.hint


def test_bases_are_told_from_the_models_of_families() -> None:
    assert CostModelName(base_family("matmul"), "xgboost", 1).is_base
    assert not CostModelName("operator:matmul", "xgboost", 1).is_base
