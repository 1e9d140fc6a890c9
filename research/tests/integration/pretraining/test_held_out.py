"""A base that is to be judged on a network has never seen its workloads."""

from pathlib import Path

import pytest

from benchmarks.held_out import base_without, without
from mallorn.core.errors import InvalidRequest
from mallorn.core.targets import parse_target
from mallorn.db.repositories.cost_models import CostModelVersions
from mallorn.db.session import Database
from research.tests.unit.pretraining.made_up import training_data
from tests.fixtures.filled_dataset import Filled

ON_SQLITE = pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
TARGET = parse_target({"kind": "llvm", "num-cores": 64})


@pytest.fixture
def export(enough: Filled, tmp_path: Path) -> Path:
    """Twenty rows and a few of each of two workloads."""
    enough.exported(tmp_path / "out")
    return tmp_path / "out"


def test_workloads_held_out_are_not_learned_from() -> None:
    known = training_data()
    keys = [task.workload for task in known.tasks]
    assert [task.workload for task in without(known, {keys[0], keys[2]}).tasks] == [keys[1], keys[3]]


@ON_SQLITE
def test_a_base_lies_in_a_data_directory_that_has_no_measurements(export: Path, tmp_path: Path) -> None:
    [base] = base_without({"elsewhere"}, export, "draft", TARGET, tmp_path / "data")
    assert (str(base.name), base.rows, base.target) == ("base:matmul/draft@1", 45, TARGET.text)
    database = Database(f"sqlite:///{tmp_path / 'data' / 'mallorn.db'}")
    with database.session() as session:
        [stored] = (
            CostModelVersions(session).page().items
        )  # of made-up rows no base beats chance: it is not active
    database.dispose()
    assert (stored.full_name, stored.target) == (str(base.name), TARGET.text)


@ON_SQLITE
def test_what_is_left_must_suffice(export: Path, tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest, match="too few measurements of other networks: 22 rows"):
        base_without({"w0"}, export, "draft", TARGET, tmp_path / "data")
