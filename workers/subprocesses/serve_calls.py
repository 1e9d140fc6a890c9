"""The child's side of a connection: answers calls until the parent closes it."""

import json
import os
import signal
import socket
from typing import TYPE_CHECKING, Final

from mallorn.workers.subprocesses.child_main import REACHED_VARIABLE
from mallorn.workers.subprocesses.errors import pack_error
from mallorn.workers.subprocesses.frame_channel import Channel, ChannelClosed, Frame

if TYPE_CHECKING:  # batches take this module along, without pydantic
    from mallorn.workers.subprocesses.typed_method import Served

FD_VARIABLE: Final = "MALLORN_CHILD_FD"
READY: Final = "ready"  # its body is the sandbox level
RESULT: Final = "result"
ERROR: Final = "error"


def serve(methods: "Served") -> None:
    """Answer calls one by one with `methods`, until the parent closes the connection."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to handle
    end = socket.socket(fileno=int(os.environ.pop(FD_VARIABLE)))
    end.set_inheritable(False)  # a compiler started here must not keep the connection open
    channel = Channel(end)
    try:
        channel.put(Frame(READY, os.environ.pop(REACHED_VARIABLE, "").encode()))
        while True:
            while (request := channel.receive_frame()) is None:
                channel.wait()
            # The one broad `except`: the caller in the parent decides what an exception means.
            try:
                answer = Frame(RESULT, methods[request.head](request.body))
            except Exception as error:
                answer = Frame(ERROR, json.dumps(pack_error(error)).encode())
            channel.put(answer)
            while channel.has_pending:
                channel.wait()
                channel.flush()
    except ChannelClosed:
        return
