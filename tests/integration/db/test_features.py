"""Features that take a compiler are kept by candidate, view, version and compiler."""

from dataclasses import replace

import pytest

from mallorn.db.repositories.cost_models import Features, FeatureSource

ROW = b"\x00\x00\x80\x3f" * 1980


@pytest.fixture
def of(rows):
    return FeatureSource(rows.workloads["w0"], rows.target_id, "statements", 1, "0.27.0")


def known(rows, of, *candidates):
    return rows.read(lambda session: Features(session).read(of, candidates))


def keep(rows, of, **numbers):
    rows.write(lambda session: Features(session).store(of, numbers))


def test_what_is_kept_is_found_again_and_nothing_else(rows, of):
    keep(rows, of, a=ROW, b=None)
    assert known(rows, of, "a", "b", "c") == {"a": ROW, "b": None}


def test_another_version_view_or_compiler_is_another_row(rows, of):
    keep(rows, of, a=ROW)
    for other in (replace(of, version=2), replace(of, view="code"), replace(of, tvm_version="0.28.0")):
        assert known(rows, other, "a") == {}


def test_who_comes_second_changes_nothing(rows, of):
    keep(rows, of, a=ROW)
    keep(rows, of, a=b"\x00" * 8, b=ROW)
    assert known(rows, of, "a", "b") == {"a": ROW, "b": ROW}


def test_nothing_is_kept_of_nothing(rows, of):
    keep(rows, of)
    assert known(rows, of) == {}


def test_more_candidates_than_fit_into_one_query_are_found(rows, of):
    names = [f"candidate {number}" for number in range(1200)]
    keep(rows, of, **dict.fromkeys(names, b"\x01\x02\x03\x04"))
    assert len(known(rows, of, *names)) == 1200
