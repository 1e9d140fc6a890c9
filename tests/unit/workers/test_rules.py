"""Which point computes which sizes."""

from collections.abc import Sequence
from itertools import product
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mallorn.core.values.dynamic_shapes import Dynamic, Rule
from mallorn.core.values.finish_report import ModelLatency, PointTimes
from mallorn.core.values.graph_report import StoredRecipe
from mallorn.core.values.manifest import MANIFEST, Manifest, read_manifest
from mallorn.workers.finish.export_directory import rewrite_dispatch_rules
from mallorn.workers.finish.shape_dispatch import (
    add_dispatch_rules,
    choose_dispatch_rules,
    dispatch_to_next_size,
)
from mallorn.workers.tvm.network.extract_tasks_of_range import choose_points_to_tune

SMALL = st.tuples(st.integers(1, 9), st.integers(0, 20)).map(lambda pair: [pair[0], sum(pair)])


def dynamic(ranges: dict[str, list[int]], divided: Sequence[str] = ()) -> Dynamic:
    points = choose_points_to_tune(ranges, divided=divided)
    return Dynamic(ranges=ranges, inputs={}, points=points, padded=list(ranges), divided=list(divided))


def followed(rules: Sequence[Rule], sizes: dict[str, int]) -> Rule:
    return next(rule for rule in rules if all(sizes[name] <= most for name, most in rule.upto.items()))


def runs(found: Dynamic, sizes: dict[str, int]) -> list[int]:
    """The points that compute these sizes, one after the other."""
    rule = followed(found.rules, sizes)
    if not rule.first:
        return [rule.point]
    rest = sizes[rule.first] - found.points[rule.point][rule.first]
    assert rest > 0, "a part is smaller than the whole"
    return [rule.point, *runs(found, sizes | {rule.first: rest})]


@given(st.dictionaries(st.sampled_from("ab"), SMALL, min_size=1), st.booleans(), st.data())
def test_every_size_is_computed_and_nothing_is_cut_off(
    ranges: dict[str, list[int]], parted: bool, data: st.DataObject
) -> None:
    found = dynamic(ranges, ["a"] if parted and "a" in ranges else [])
    costs = [data.draw(st.floats(0.1, 100.0)) for _ in found.points]
    found = found.model_copy(update={"rules": choose_dispatch_rules(found, costs)})
    for sizes in product(*(range(low, high + 1) for low, high in ranges.values())):
        wanted = dict(zip(ranges, sizes, strict=True))
        done = [found.points[place] for place in runs(found, wanted)]
        for name, size in wanted.items():
            room = sum(point[name] for point in done) if name == "a" and parted else done[-1][name]
            assert room >= size
            assert all(point[name] >= size for point in done) or (parted and name == "a")


def test_sizes_go_to_the_next_point_where_nothing_may_be_divided() -> None:
    found = dynamic({"n": [1, 64]})
    rules = choose_dispatch_rules(found, [float(point["n"]) for point in found.points])
    assert [rule.upto["n"] for rule in rules] == [point["n"] for point in found.points]
    assert not any(rule.first for rule in rules)


def test_parts_are_taken_where_they_are_faster_than_what_is_filled_up() -> None:
    found = dynamic({"n": [1, 64]}, ["n"])
    rules = choose_dispatch_rules(found, [10.0 + point["n"] for point in found.points])
    just_above = followed(rules, {"n": 33})
    assert (found.points[just_above.point]["n"], just_above.first) == (32, "n")
    assert followed(rules, {"n": 63}).first == ""


def test_a_slow_point_is_passed_over_for_a_larger_one() -> None:
    found = dynamic({"n": [1, 2]})
    assert followed(choose_dispatch_rules(found, [9.0, 5.0]), {"n": 1}).point == 1


def test_a_points_cost_is_that_of_the_tasks_it_calls() -> None:
    found = dynamic({"n": [1, 2]}).model_copy(update={"calls": [{"a": 9, "b": 1}, {"c": 1}]})
    rules = add_dispatch_rules(found, {"a": 1.0, "b": 1.0, "c": 2.0}).rules
    assert followed(rules, {"n": 1}).point == 1


@given(st.dictionaries(st.sampled_from("ab"), SMALL, min_size=1), st.booleans())
def test_points_compute_their_own_sizes_where_they_are_timed(
    ranges: dict[str, list[int]], parted: bool
) -> None:
    found = dispatch_to_next_size(dynamic(ranges, ["a"] if parted and "a" in ranges else []))
    assert [runs(found, point) for point in found.points] == [[place] for place in range(len(found.points))]


def timed(sizes: dict[str, int], us: float | None, slow_us: float = 0.0) -> PointTimes:
    """Bursts of which one was quiet, and most were not."""
    bursts = [] if us is None else [us + slow_us, us, us + slow_us]
    latency = None if us is None else ModelLatency(median=us + slow_us, low=us, high=us, bursts=bursts)
    return PointTimes(sizes=sizes, latency_us={"tuned": latency})


def exported(folder: Path, divided: Sequence[str] = ()) -> Dynamic:
    """A range whose rules were made by what its tasks took: the small point's were slow that day."""
    found = dynamic({"n": [1, 2]}, divided)
    found = found.model_copy(update={"rules": choose_dispatch_rules(found, [9.0, 5.0])})
    recipe = StoredRecipe(name="plain", version=1, before=[], after=[])
    manifest = Manifest(target={"kind": "llvm"}, recipe=recipe, dynamic=found)
    (folder / MANIFEST).write_text(manifest.model_dump_json())
    return found


def rules_in(folder: Path) -> list[Rule]:
    kept = read_manifest(folder / MANIFEST).dynamic
    assert kept is not None
    return kept.rules


def test_rules_follow_what_the_whole_model_took_at_its_points(tmp_path: Path) -> None:
    found = exported(tmp_path)
    rewrite_dispatch_rules(tmp_path, [timed(point, 3.0 * point["n"]) for point in found.points])
    assert [rule.point for rule in rules_in(tmp_path)] == [0, 1]


def test_a_manifest_reads_the_same_in_every_locale(tmp_path: Path) -> None:
    found = exported(tmp_path)
    named = read_manifest(tmp_path / MANIFEST).model_copy(update={"job": "caf\u00e9 \u6a21"})
    (tmp_path / MANIFEST).write_text(named.model_dump_json(), encoding="utf-8")
    rewrite_dispatch_rules(tmp_path, [timed(point, 3.0 * point["n"]) for point in found.points])
    assert (tmp_path / MANIFEST).read_bytes().isascii()
    assert read_manifest(tmp_path / MANIFEST).job == named.job


def test_a_point_that_was_disturbed_counts_with_its_least_burst(tmp_path: Path) -> None:
    first, second = exported(tmp_path).points
    rewrite_dispatch_rules(tmp_path, [timed(first, 3.0, slow_us=100.0), timed(second, 6.0)])
    assert [rule.point for rule in rules_in(tmp_path)] == [0, 1]


@pytest.mark.parametrize(("slow_us", "taken"), [(4.0, 0), (1.0, 1)], ids=["maybe faster", "surely faster"])
@pytest.mark.parametrize("parted", [False, True])
def test_a_larger_point_is_taken_if_it_is_surely_faster(
    tmp_path: Path, slow_us: float, taken: int, parted: bool
) -> None:
    """All of the first point's bursts were slow; those of the second were now and then."""
    first, second = exported(tmp_path, ["n"] if parted else []).points
    rewrite_dispatch_rules(tmp_path, [timed(first, 9.0), timed(second, 6.0, slow_us)])
    assert rules_in(tmp_path)[0].point == taken


def test_rules_stay_where_a_point_was_not_timed(tmp_path: Path) -> None:
    found = exported(tmp_path)
    rewrite_dispatch_rules(tmp_path, [timed(found.points[0], 3.0), timed(found.points[1], None)])
    rewrite_dispatch_rules(tmp_path, [])
    assert rules_in(tmp_path) == found.rules
