"""The broker of an embedded stack ends what its clients wait for, so that a stop waits for none of them."""

import subprocess
import threading
from pathlib import Path

import pytest
import redis

from mallorn.stack.supervised_process import broker_answers
from mallorn.stack.valkey import unblock_waiting_clients, valkey_command
from tests.fixtures.waiting import PATIENCE, wait_for


def test_a_client_that_waits_for_a_message_is_answered_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # a socket's path is short
    socket, answers = Path("broker.sock"), list[object]()
    with subprocess.Popen(valkey_command(socket), stdout=subprocess.DEVNULL) as broker:
        try:
            wait_for(lambda: broker_answers(socket), "the broker")
            with redis.Redis(unix_socket_path=str(socket)) as client:
                waiting = threading.Thread(target=lambda: answers.append(client.brpop("queue", timeout=0)))
                waiting.start()
                with redis.Redis(unix_socket_path=str(socket)) as other:
                    wait_for(lambda: other.info("clients")["blocked_clients"] == 1, "the client's wait")
                    unblock_waiting_clients(socket)
                    waiting.join(PATIENCE)
                assert answers == [None]
        finally:
            broker.kill()


def test_without_a_broker_nothing_is_ended(tmp_path: Path) -> None:
    unblock_waiting_clients(tmp_path / "broker.sock")
