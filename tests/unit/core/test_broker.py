"""What all parts agree on when they speak to the broker."""

from typing import Any

import pytest
from celery import Celery
from kombu.transport.redis import Transport
from pydantic import ValidationError

from mallorn.core.queues import celery_settings
from mallorn.core.settings import Settings


def test_an_answer_that_never_comes_is_not_waited_for_for_ever() -> None:
    options = celery_settings("redis://127.0.0.1:1/0")["broker_transport_options"]
    longest_poll_sec = Transport.brpop_timeout
    assert longest_poll_sec < options["socket_timeout"] <= 10
    assert options["health_check_interval"] <= 10


def test_a_message_outlives_the_longest_round_before_it_comes_again() -> None:
    options = celery_settings("redis://127.0.0.1:1/0")["broker_transport_options"]
    assert options["visibility_timeout"] >= 3600


def test_sentinels_are_asked_where_the_broker_is(monkeypatch: pytest.MonkeyPatch) -> None:
    class Asked(Exception):
        """Before anybody is connected to."""

    def sentinel(places: Any, **how: Any) -> None:
        raise Asked(places, how)

    monkeypatch.setattr("kombu.transport.redis.sentinel.Sentinel", sentinel)
    celery = Celery(set_as_current=False)
    url = "sentinel://:secret@one:26379,two:26380/3?master_name=mallorn&sentinel_password=theirs"
    celery.conf.update(celery_settings(url))
    assert celery.conf.broker_transport_options["master_name"] == "mallorn"
    with celery.connection_for_write() as connection, pytest.raises(Asked) as asked:
        connection.channel()
    places, how = asked.value.args
    assert places == [("one", 26379), ("two", 26380)]
    assert (how["password"], how["db"]) == ("secret", 3)
    assert how["sentinel_kwargs"] == {"password": "theirs", "socket_timeout": how["socket_timeout"]}


@pytest.mark.parametrize("url", ["sentinel://one:26379/0", "amqp://broker", "broker:6379", ""])
def test_a_broker_that_cannot_be_spoken_to_is_refused_at_the_start(url: str) -> None:
    with pytest.raises(ValidationError, match="master_name=NAME"):
        Settings(redis_url=url)
