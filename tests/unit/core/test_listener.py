"""A service that nobody named is asked only where the kernel says that it is one's own."""

import os
import socket
from collections.abc import Iterator

import pytest

from mallorn import Client
from mallorn.core.address_checks import NotYours, check_own_service, listener_uid
from mallorn.core.settings import settings

ADDRESSES = [
    (socket.AF_INET, "127.0.0.1"),
    (socket.AF_INET, "0.0.0.0"),
    (socket.AF_INET6, "::"),
    (socket.AF_INET6, "::ffff:127.0.0.1"),
]


@pytest.fixture(params=ADDRESSES, ids=lambda each: each[1])
def port(request: pytest.FixtureRequest) -> Iterator[int]:
    """A port at which this process listens."""
    family, address = request.param
    try:
        both = family is socket.AF_INET6
        listener = socket.create_server((address, 0), family=family, dualstack_ipv6=both)
    except OSError:
        pytest.skip("this machine has no IPv6")
    yield listener.getsockname()[1]
    listener.close()


def test_who_listens_is_known_whatever_of_the_machine_is_bound(port: int) -> None:
    assert listener_uid(port) == os.getuid()
    url = f"http://127.0.0.1:{port}"
    assert check_own_service(url) == url


def test_a_listener_at_another_address_of_this_machine_is_known() -> None:
    with socket.create_server(("127.0.0.2", 0)) as listener:
        port = listener.getsockname()[1]
        assert listener_uid(port, "127.0.0.2") == os.getuid()
        assert listener_uid(port) is None


def test_where_nobody_listens_nobody_is_named() -> None:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))  # and does not listen
        assert listener_uid(bound.getsockname()[1]) is None


def test_a_client_goes_to_another_users_service_only_when_told_to(
    port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = f"http://127.0.0.1:{port}"
    monkeypatch.delenv("MALLORN_URL", raising=False)
    monkeypatch.setattr("mallorn.client.coordinator_client.DEFAULT_URL", url)
    monkeypatch.setattr(os, "getuid", lambda: 4242)
    settings.cache_clear()
    with pytest.raises(NotYours, match=f"the service at {url} belongs to user") as refusal:
        Client()
    assert f"export MALLORN_URL={url}" in refusal.value.hint
    with Client(url) as named:
        assert named.connection.url == url
    settings.cache_clear()
