"""What an issuer publishes: fetched seldom, however often it is asked for."""

import threading
from typing import Any

import pytest

from mallorn.core.errors import Unavailable
from mallorn.services.coordinator.sign_in.oidc_provider import AGAIN_SEC, KEPT_SEC, ProviderMetadata
from tests.fixtures.waiting import PATIENCE


class Issuer:
    """Counts the visits; `away` raises."""

    def __init__(self) -> None:
        self.visits = 0
        self.away = False
        self.now_sec = 0.0
        self.published = ProviderMetadata(self.ask, lambda: self.now_sec)

    def ask(self) -> dict[str, Any]:
        self.visits += 1
        if self.away:
            raise Unavailable("it is away", hint="curl it")
        return {"visit": self.visits}


@pytest.fixture
def issuer() -> Issuer:
    return Issuer()


def test_a_document_is_kept_to_its_end(issuer: Issuer) -> None:
    assert issuer.published.read() == {"visit": 1}
    issuer.now_sec = KEPT_SEC - 1
    assert issuer.published.read() == {"visit": 1}
    issuer.now_sec = KEPT_SEC
    assert issuer.published.read() == {"visit": 2}


def test_a_newer_one_is_asked_for_once_in_a_while(issuer: Issuer) -> None:
    for _ in range(5):
        assert issuer.published.read(must_refetch=True) == {"visit": 1}
    issuer.now_sec = AGAIN_SEC
    assert issuer.published.read(must_refetch=True) == {"visit": 2}


def test_one_that_is_away_is_not_asked_by_each_visit(issuer: Issuer) -> None:
    issuer.away = True
    for _ in range(5):
        with pytest.raises(Unavailable, match="it is away"):
            issuer.published.read()
    assert issuer.visits == 1
    issuer.away, issuer.now_sec = False, AGAIN_SEC
    assert issuer.published.read() == {"visit": 2}


def test_what_is_known_stays_good_while_the_issuer_is_away(issuer: Issuer) -> None:
    issuer.published.read()
    issuer.away, issuer.now_sec = True, AGAIN_SEC
    assert issuer.published.read(must_refetch=True) == {"visit": 1}
    issuer.now_sec = KEPT_SEC
    with pytest.raises(Unavailable):
        issuer.published.read()


def test_visits_at_once_ask_once() -> None:
    asked, go_on = threading.Semaphore(0), threading.Event()

    def slow() -> dict[str, Any]:
        asked.release()
        assert go_on.wait(PATIENCE)
        return {}

    published = ProviderMetadata(slow)
    visits = [threading.Thread(target=published.read) for _ in range(4)]
    for visit in visits:
        visit.start()
    assert asked.acquire(timeout=PATIENCE)
    go_on.set()
    for visit in visits:
        visit.join(PATIENCE)
    assert not asked.acquire(blocking=False)
