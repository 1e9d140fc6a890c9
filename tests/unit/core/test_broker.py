"""What all parts agree on when they speak to the broker."""

from kombu.transport.redis import Transport

from mallorn.core.broker import celery_settings


def test_an_answer_that_never_comes_is_not_waited_for_for_ever() -> None:
    options = celery_settings("redis://127.0.0.1:1/0")["broker_transport_options"]
    longest_poll_sec = Transport.brpop_timeout
    assert longest_poll_sec < options["socket_timeout"] <= 10
    assert options["health_check_interval"] <= 10


def test_a_message_outlives_the_longest_round_before_it_comes_again() -> None:
    options = celery_settings("redis://127.0.0.1:1/0")["broker_transport_options"]
    assert options["visibility_timeout"] >= 3600
