"""The child's side: answer calls until the parent is gone."""

import os
import signal
import socket
from collections.abc import Callable, Mapping
from typing import Any

from workers.children.channel import Channel, ChannelClosed
from workers.children.errors import pack_error

FD_VARIABLE = "MALLORN_CHILD_FD"
Method = Callable[..., Any]


def serve(methods: Mapping[str, Method]) -> None:
    """Answer calls of the named methods, one after the other, with their results or their exceptions."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to handle
    end = socket.socket(fileno=int(os.environ.pop(FD_VARIABLE)))
    end.set_inheritable(False)  # a compiler that we start must not keep the line open
    channel = Channel(end)
    try:
        channel.put({"ready": True})
        while True:
            request = _read(channel)
            _answer(channel, methods, request)
            _drain(channel)
    except ChannelClosed:
        return


def _answer(channel: Channel, methods: Mapping[str, Method], request: dict[str, Any]) -> None:
    # The one broad `except` here: whatever a method raises is its caller's to judge, on the other side.
    try:
        channel.put({"result": methods[request["method"]](**request["params"])})
    except Exception as error:
        channel.put({"error": pack_error(error)})


def _read(channel: Channel) -> dict[str, Any]:
    while (message := channel.pump()) is None:
        channel.wait(None)
    return message


def _drain(channel: Channel) -> None:
    while channel.pending:
        channel.wait(None)
        channel.flush()
