"""Bytes that a native library reads are looked at first: it would follow damage into a segmentation fault."""

import random

import pytest

from mallorn.core.errors import InvalidRequest
from mallorn.costmodels.serialization import SEAL, add_digest, check_and_remove_digest
from mallorn.costmodels.testing import easy_data
from mallorn.costmodels.xgboost_models import KIND, XGBoost

rng = random.Random(0)


@pytest.fixture(scope="module")
def blob() -> bytes:
    model = XGBoost()
    model.fit(*easy_data(60, 0), seed=0)
    return model.save()


@pytest.mark.parametrize("place", [rng.random() for _ in range(40)])
def test_a_flipped_bit_never_reaches_the_library(blob: bytes, place: float) -> None:
    damaged = bytearray(blob)
    damaged[len(SEAL) + int(place * (len(blob) - len(SEAL)))] ^= 1 << rng.randrange(8)
    with pytest.raises(InvalidRequest, match="they are damaged") as caught:
        XGBoost.load(bytes(damaged))
    assert caught.value.hint


def test_models_of_earlier_versions_have_no_seal_and_are_read(blob: bytes) -> None:
    features = easy_data(20, 1)[0]
    old = check_and_remove_digest(KIND, blob)
    assert add_digest(old) == blob
    assert (XGBoost.load(old).predict(features).mean == XGBoost.load(blob).predict(features).mean).all()
