"""The names of the package are its entry points, and each leads to a class of its seam."""

import pytest

from mallorn.core.registry import REGISTRY, RESEARCH_NAMES, WORDS, find_plugins
from tests.unit.workers.test_doors import check_class, check_no_tvm

NAMES = [(seam, name) for seam, names in RESEARCH_NAMES.items() for name in names]


def test_a_workers_own_process_loads_no_tvm() -> None:
    check_no_tvm(*(place.partition(":")[0] for place in find_plugins("measurer").values()))


@pytest.mark.parametrize(("seam", "name"), NAMES)
def test_a_name_is_what_its_seam_says(seam: str, name: str) -> None:
    check_class(seam, name)


@pytest.mark.parametrize("seam", sorted(RESEARCH_NAMES))
def test_names_of_research_are_its_entry_points(seam: str) -> None:
    assert seam in WORDS
    assert RESEARCH_NAMES[seam].keys() == find_plugins(seam).keys()
    assert not RESEARCH_NAMES[seam].keys() & REGISTRY.get(seam, {}).keys()
