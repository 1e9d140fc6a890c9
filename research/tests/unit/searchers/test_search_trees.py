"""Trees grow by what is asked of them, remember what came of it, and prefer what is good or unknown."""

import numpy as np

from mallorn.searchers.learning.exploring_learner import ScoredRows
from mallorn.searchers.synthetic_space import TILED, SyntheticSpace
from mallorn_research.searchers.monte_carlo_tree_search import NOWHERE, Rollouts, SearchTrees, SketchTrees


def test_a_child_is_made_once_and_found_again() -> None:
    nodes = SearchTrees(2, 3)
    parents, options = nodes.roots[[0, 0, 1, 0]], np.array([2, 2, 2, 1])
    first, made = nodes.get_or_create_children(parents, options)
    assert made.all()
    assert len(set(first.tolist())) == 3
    assert first[0] == first[1]
    again, made = nodes.get_or_create_children(parents, options)
    assert not made.any()
    np.testing.assert_array_equal(again, first)
    assert len(nodes) == 2 + 3


def test_nowhere_has_no_children() -> None:
    nodes = SearchTrees(1, 3)
    child, made = nodes.get_or_create_children(np.array([NOWHERE]), np.array([0]))
    assert child.tolist() == [NOWHERE]
    assert not made.any()


def test_trees_outgrow_their_first_size() -> None:
    nodes, node = SearchTrees(1, 2), np.array([0])
    for _ in range(1000):
        node, _ = nodes.get_or_create_children(node, np.array([1]))
    nodes.credit_paths(node[None], np.array([0.5]))
    assert len(nodes) == 1001


def test_the_better_option_has_the_higher_bound_until_the_other_was_neglected() -> None:
    nodes = SearchTrees(1, 2)
    root = np.array([0, 0])
    child, _ = nodes.get_or_create_children(root, np.array([0, 1]))
    paths = np.stack([root, child], axis=1)
    nodes.credit_paths(paths, np.array([0.9, 0.5]))
    even = np.full((1, 2), 0.5)
    bound = nodes.bound(root[:1], even, curiosity=0.1)[0]
    assert bound[0] > bound[1]
    nodes.credit_paths(np.repeat(paths[:1], 400, axis=0), np.full(400, 0.6))
    bound = nodes.bound(root[:1], even, curiosity=0.5)[0]
    assert bound[1] > bound[0]


def test_an_option_never_taken_is_tried_sooner_the_likelier_it_is() -> None:
    nodes = SearchTrees(1, 3)
    child, _ = nodes.get_or_create_children(np.array([0]), np.array([0]))
    nodes.credit_paths(np.array([[0, child[0]]]), np.array([0.4]))
    bound = nodes.bound(np.array([0]), np.array([[0.2, 0.1, 0.7]]), curiosity=1.0)[0]
    assert bound[2] > bound[1]


def test_a_tree_without_visits_beats_its_sisters_by_doubt() -> None:
    nodes = SearchTrees(2, 2)
    nodes.credit_paths(np.array([[0]] * 50), np.full(50, 0.5))
    bound = nodes.root_bound(2, np.array([50.0, 50.0]), curiosity=1.0)
    assert bound[1] > bound[0]


def test_a_rollout_adds_one_node_and_learns_which_beginning_pays() -> None:
    space, rng = SyntheticSpace(64, 64, 64), np.random.default_rng(0)
    trees = SketchTrees(space.by_key[TILED], trees=2)
    for _ in range(40):
        size = len(trees.nodes)
        rollouts = Rollouts(trees, np.array([0, 1] * 16), rng)
        rows = rollouts.complete(curiosity=0.3, noise=0.02)
        assert size < len(trees.nodes) <= size + 32
        rollouts.credit_results(paid(space, rows))
    learnt = Rollouts(trees, np.array([0, 1] * 50), rng).complete(curiosity=0.0, noise=0.0)
    assert np.mean(learnt[:, 3] == 8) > 0.8


def test_of_the_planted_paths_the_better_is_followed() -> None:
    space, rng = SyntheticSpace(64, 64, 64), np.random.default_rng(0)
    trees = SketchTrees(space.by_key[TILED], trees=1)
    good, bad = (8, 1, 1, 8, 1, 4, 1, 16, 4, 16, 1, 0), (16, 1, 1, 4, 1, 4, 1, 16, 4, 16, 1, 0)
    trees.add_paths(paid(space, np.array([good, bad], dtype=np.int32)), np.array([0, 0]))
    assert len(trees.nodes) == 1 + 2 * len(trees.knobs)
    followers = Rollouts(trees, np.zeros(20, dtype=np.int64), rng).complete(curiosity=0.0, noise=1e-9)
    assert (followers[:, 3] == 8).all()


def paid(space: SyntheticSpace, rows: np.ndarray) -> ScoredRows:
    """Only the first knob, the rows' innermost factor, matters: 8 is best."""
    promise = np.where(rows[:, 3] == 8, 0.0, -2.0)
    return ScoredRows(space.by_key[TILED], rows, np.empty((len(rows), 0), np.float32), promise)
