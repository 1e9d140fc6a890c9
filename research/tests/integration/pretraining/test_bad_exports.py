"""A model learns nothing from an export that is not whole, and passes over its bad rows."""

from pathlib import Path

import pytest

from mallorn.core.errors import InvalidRequest, NotFound
from mallorn_research.pretraining.read_measurements import read_training_data
from tests.integration.dataset.test_bad_parcels import BAD, FLAWS, parcel, spoil_first_row

__all__ = ["parcel"]
pytestmark = pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)


@pytest.mark.parametrize("name", BAD)
def test_what_is_not_whole_is_refused(name: str, parcel: Path) -> None:
    spoil, said = BAD[name]
    spoil(parcel)
    with pytest.raises((InvalidRequest, NotFound), match=said):
        read_training_data(parcel)


@pytest.mark.parametrize("name", FLAWS)
def test_a_bad_value_costs_its_row_only(name: str, parcel: Path) -> None:
    counted = spoil_first_row(parcel, name)
    training_data = read_training_data(parcel)
    assert (training_data.rows, dict(training_data.skipped)) == (4, {counted: 1})
