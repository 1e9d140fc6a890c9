"""Whose turn it is: what owners and jobs may expect of their share, whatever the rounds are like."""

from collections import Counter
from collections.abc import Callable, Collection
from dataclasses import replace
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mallorn.core.job_options import LARGEST_ROUND
from mallorn.services.planner.fair_share import MAX_PRIORITY, JobShare, charge_job, distribute_rounds
from tests.fixtures import sorted_shares
from tests.fixtures.sorted_shares import sort_by_fair_share

ROUNDS = 1000
SMALLEST = 4
priorities = st.integers(-MAX_PRIORITY - 2, MAX_PRIORITY + 2)
owners_of_jobs = st.lists(st.tuples(st.sampled_from("abcd"), priorities), min_size=1, max_size=10)
seeds = st.integers(0, 2**31)


def made(of: Collection[tuple[str, int]]) -> list[JobShare]:
    return [JobShare(f"j{at}", owner, priority, 0.0, 0.0) for at, (owner, priority) in enumerate(of)]


def any_size(random: Random) -> Callable[[str], int]:
    return lambda _job_id: random.randint(SMALLEST, LARGEST_ROUND)


def turn(jobs: list[JobShare], size: Callable[[str], int], given: Counter[str]) -> str:
    """One round goes to whoever is next; `given` counts the candidates."""
    chosen = sort_by_fair_share(jobs)[0].id
    given[chosen] += (candidates := size(chosen))
    paid = charge_job(jobs, chosen, candidates)
    jobs[:] = [paid if job.id == chosen else job for job in jobs]
    return chosen


def rounds(jobs: list[JobShare], size: Callable[[str], int], count: int = ROUNDS) -> Counter[str]:
    given = Counter({job.id: 0 for job in jobs})
    for _ in range(count):
        turn(jobs, size, given)
    return given


def fair_part(jobs: Collection[JobShare]) -> dict[str, float]:
    """What part of everything each job is owed."""
    owners = len({job.owner for job in jobs})
    siblings = Counter[str]()
    for job in jobs:
        siblings[job.owner] += job.weight
    return {job.id: job.weight / siblings[job.owner] / owners for job in jobs}


@settings(max_examples=15, deadline=None)
@given(of=owners_of_jobs, seed=seeds)
def test_over_a_thousand_rounds_shares_are_fair_within_five_percent(of, seed) -> None:
    jobs = made(of)
    received = rounds(jobs, any_size(Random(seed)))
    total = received.total()
    for job_id, part in fair_part(jobs).items():
        assert abs(received[job_id] - part * total) <= 0.05 * total
        assert received[job_id] >= 0.95 * part * total - LARGEST_ROUND, "behind by more than its last round"


@settings(max_examples=15, deadline=None)
@given(of=owners_of_jobs, sizes=st.lists(st.integers(SMALLEST, LARGEST_ROUND), min_size=10, max_size=10))
def test_small_rounds_are_no_disadvantage(of, sizes) -> None:
    jobs = made(of)
    received = rounds(jobs, lambda job_id: sizes[int(job_id[1:])])
    total = received.total()
    for job_id, part in fair_part(jobs).items():
        assert received[job_id] >= part * (total - 2 * len(jobs) * LARGEST_ROUND) - LARGEST_ROUND
        assert received[job_id] <= part * (total + 2 * len(jobs) * LARGEST_ROUND) + LARGEST_ROUND


@settings(max_examples=15, deadline=None)
@given(
    of=st.lists(st.tuples(st.sampled_from("abcd"), st.integers(-1, 2)), min_size=1, max_size=6), seed=seeds
)
def test_every_job_gets_its_turn_again_and_again(of, seed) -> None:
    jobs, random = made(of), Random(seed)
    rounds(jobs, any_size(random), count=100)
    waited = Counter[str]()
    longest = LARGEST_ROUND / min(fair_part(jobs).values()) + 2 * len(jobs) * LARGEST_ROUND
    for _ in range(500):
        given = Counter[str]()
        chosen = turn(jobs, any_size(random), given)
        for job in jobs:
            waited[job.id] = 0 if job.id == chosen else waited[job.id] + given.total()
        assert max(waited.values()) <= longest


@settings(max_examples=15, deadline=None)
@given(of=owners_of_jobs, owner=st.sampled_from("abcde"), priority=priorities, seed=seeds)
def test_a_newcomer_neither_waits_nor_monopolises(of, owner, priority, seed) -> None:
    jobs, random = made(of), Random(seed)
    rounds(jobs, any_size(random), count=200)
    before = {job.owner for job in jobs}
    jobs.append(JobShare("new", owner, priority))
    order = sort_by_fair_share(jobs)
    assert next(job.id for job in order if job.owner == owner) == "new"
    assert owner in before or order[0].id == "new"
    received = rounds(jobs, any_size(random), count=300)
    part = fair_part(jobs)["new"]
    assert received["new"] > 0
    assert received["new"] <= part * (received.total() + 2 * len(jobs) * LARGEST_ROUND) + LARGEST_ROUND


def test_a_hundred_newcomers_of_one_owner_do_not_push_another_aside() -> None:
    jobs = [JobShare("mine", "ada"), *(JobShare(f"j{at}", "bob") for at in range(100))]
    received = rounds(jobs, lambda _: 16, count=100)
    assert abs(received["mine"] - 50 * 16) <= 16


def test_a_step_of_priority_is_twice_the_share_and_a_thousand_steps_are_as_good_as_five() -> None:
    jobs = made([("ada", 0), ("ada", 1), ("bob", -1000)])
    received = rounds(jobs, lambda _: 16, count=600)
    assert received == {"j0": 100 * 16, "j1": 200 * 16, "j2": 300 * 16}
    assert JobShare("a", "ada", 1000).weight == JobShare("a", "ada", MAX_PRIORITY).weight


@settings(max_examples=15, deadline=None)
@given(of=owners_of_jobs, seed=seeds, order=st.randoms(use_true_random=False))
def test_the_order_of_the_jobs_changes_nothing(of, seed, order) -> None:
    jobs = made(of)
    rounds(jobs, any_size(Random(seed)), count=50)
    shuffled = jobs.copy()
    order.shuffle(shuffled)
    assert sort_by_fair_share(jobs) == sort_by_fair_share(shuffled)
    assert charge_job(jobs, "j0", 16) == charge_job(shuffled, "j0", 16)


@pytest.mark.parametrize("owners", ["ab", "aa"])
def test_a_job_that_could_not_use_its_turns_does_not_make_up_for_them(owners) -> None:
    jobs = [JobShare("busy", owners[0]), JobShare("idle", owners[1])]
    rounds(jobs, lambda _: 16, count=10)
    for _ in range(200):  # the idle one has nothing to try
        jobs[0] = charge_job(jobs, "busy", 16)
    received = rounds(jobs, lambda _: 16, count=100)
    assert abs(received["idle"] - received["busy"]) <= LARGEST_ROUND + 16


@settings(max_examples=30, deadline=None)
@given(of=owners_of_jobs, able=st.sets(st.integers(0, 9)), count=st.integers(0, 12), seed=seeds)
def test_rounds_are_dealt_to_those_that_can_use_one_as_their_turns_come(of, able, count, seed) -> None:
    jobs = made(of)
    rounds(jobs, any_size(Random(seed)), count=30)
    wanted = {f"j{at}" for at in able}
    present = [job.id for job in sort_by_fair_share(jobs) if job.id in wanted]
    got = distribute_rounds(jobs, wanted, count)
    assert sum(got.values()) == (count if present else 0)
    assert set(got) <= wanted
    assert list(got)[:1] == present[: min(1, count)]


passes = st.none() | st.integers(0, 40).map(lambda quarter: quarter * 4.0) | st.floats(0, 200)
stored_jobs = st.lists(
    st.tuples(st.sampled_from("abcd"), priorities, passes, passes), min_size=1, max_size=12
)


@settings(max_examples=300, deadline=None)
@given(of=stored_jobs, able=st.sets(st.integers(0, 12)), count=st.integers(0, 40), size=st.integers(0, 64))
def test_turns_are_those_of_sorting_all_jobs_again_for_each_round(of, able, count, size) -> None:
    jobs = [JobShare(f"j{at}", *columns) for at, columns in enumerate(of)]
    wanted = {f"j{at}" for at in able}
    got = distribute_rounds(jobs, wanted, count)
    expected = sorted_shares.distribute_rounds(jobs, wanted, count)
    assert list(got.items()) == list(expected.items())
    for job in jobs:
        assert charge_job(jobs, job.id, size) == sorted_shares.charge_job(jobs, job.id, size)


@pytest.mark.parametrize("left", ["j0", "j1", "j2"])
def test_shares_stay_right_when_a_job_leaves_and_comes_back(left) -> None:
    jobs = [JobShare("j0", "ada", 2), JobShare("j1", "ada"), JobShare("j2", "bob")]
    rounds(jobs, lambda _: 16, count=101)
    away = next(job for job in jobs if job.id == left)
    jobs.remove(away)
    received = rounds(jobs, lambda _: 16, count=300)
    for job_id, part in fair_part(jobs).items():
        assert abs(received[job_id] - part * received.total()) <= 2 * LARGEST_ROUND
    jobs.append(replace(away, share_pass=None, owner_pass=None))
    received = rounds(jobs, lambda _: 16, count=300)
    for job_id, part in fair_part(jobs).items():
        assert abs(received[job_id] - part * received.total()) <= 2 * LARGEST_ROUND
