"""A bucket of requests: full at first, and filled steadily."""

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mallorn.core.errors import TooMany
from mallorn.services.coordinator.web.quotas import RateLimit

ADA = ("ada", "1"), "ada"


def test_after_the_time_that_is_told_there_is_one_more() -> None:
    now = [0.0]
    rates = RateLimit(6, lambda: now[0])
    for _ in range(6):
        rates.count_request(*ADA)
    with pytest.raises(TooMany) as caught:
        rates.count_request(*ADA)
    assert caught.value.retry_sec == 10
    now[0] += caught.value.retry_sec
    rates.count_request(*ADA)
    with pytest.raises(TooMany):
        rates.count_request(*ADA)


def test_without_a_limit_nobody_is_counted() -> None:
    rates = RateLimit(0)
    for _ in range(1000):
        rates.count_request(*ADA)


@given(st.integers(1, 50), st.lists(st.floats(0, 30), max_size=200))
def test_no_key_gets_more_than_its_bucket_and_what_flowed_in(per_minute: int, pauses: list[float]) -> None:
    now = [0.0]
    rates = RateLimit(per_minute, lambda: now[0])
    served = 0
    for pause_sec in pauses:
        now[0] += pause_sec
        with suppress(TooMany):
            rates.count_request(*ADA)
            served += 1
    assert served <= per_minute + now[0] * per_minute / 60 + 1e-6
