"""Messages of a session to its device: when candidates run, why it ends, what it prints.

A session runs untrusted native code, so it opens no file of its device. The device writes
the log of executions, and its own clock keeps the deadline.
"""

import logging
import os
import signal
import socket
import time
from collections.abc import Collection, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from mallorn.core.storable_json import quote_untrusted
from mallorn.workers.device.measuring_conditions import bind_threads

log = logging.getLogger(__name__)
#: First byte of each message.
_BEGIN, _END = b"B", b"E"
_MESSAGE_BYTES: Final = 1000
#: Limits per session.
MESSAGES_BYTES: Final = 4 << 20
OUTPUT_BYTES: Final = 64 << 10


class DeviceLink:
    """The session's end of its channel to the device. Methods wait for an answer."""

    def __init__(self, end: socket.socket) -> None:
        self._end = end

    def begin_candidate(self, key: str, deadline_sec: float) -> None:
        """Have the device log one execution and start its deadline."""
        self._request(_BEGIN, f"{deadline_sec:.6f} {key}")

    def end_candidate(self, cause: str = "") -> None:
        """Cancel the deadline; `cause` is why this process is about to exit."""
        self._request(_END, cause)

    def _request(self, kind: bytes, text: str) -> None:
        self._end.send((kind + text.encode())[:_MESSAGE_BYTES])
        self._end.recv(1)


class SessionMonitor:
    """The device's end. It ends the session for `fault`; the session exits for `cause`."""

    def __init__(self, log_path: Path | None, thread_cpus: Sequence[Collection[int]]) -> None:
        self.cause = self.fault = ""
        self.is_host_fault = False
        self.pid = 0  # of the session
        self._log_path, self._thread_cpus = log_path, thread_cpus
        self._end, self._session_end = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._output, self._session_output = socket.socketpair()
        self._message_bytes = self._output_bytes = 0

    def enter_session(self) -> DeviceLink:
        """Redirect the output of the session's process to the device; return its link."""
        for number in (1, 2):
            os.dup2(self._session_output.fileno(), number)
        for end in (self._end, self._output, self._session_output):
            end.close()
        return DeviceLink(self._session_end)

    def descriptors(self) -> list[int]:
        """Return the descriptors to poll; pass those that are ready to `read_once`."""
        return [end.fileno() for end in (self._end, self._output) if end.fileno() >= 0]

    def read_once(self, number: int) -> bool:
        """Read what a descriptor has now; return whether there may be more."""
        try:
            if number == self._output.fileno():
                return self._log_output(self._output.recv(4096, socket.MSG_DONTWAIT))
            self._answer_message(self._end.recv(_MESSAGE_BYTES, socket.MSG_DONTWAIT))
        except BlockingIOError:
            return False
        except (OSError, ValueError, OverflowError) as error:
            message = f"the session broke its protocol: {quote_untrusted(error, None)}"
            self.fault = self.fault or message
        return not self.fault

    def close(self) -> None:
        """Read what the ended session left; stop its deadline; close all descriptors."""
        for number in self.descriptors():
            while self.read_once(number):
                pass
        signal.setitimer(signal.ITIMER_REAL, 0)
        for end in (self._end, self._session_end, self._output, self._session_output):
            end.close()

    def _answer_message(self, message: bytes) -> None:
        self._message_bytes += len(message)
        if not message or self._message_bytes > MESSAGES_BYTES:
            raise ValueError(f"it sent no messages or more than {MESSAGES_BYTES >> 20} MiB")
        text = message[1:].decode(errors="replace")
        if message.startswith(_BEGIN):
            seconds, _, key = text.partition(" ")
            try:
                if self._log_path is not None:
                    with self._log_path.open("ab", buffering=0) as file:
                        file.write(f"{time.time():.6f}\t{quote_untrusted(key, None)}\t{self.pid}\n".encode())
            except OSError as error:
                self.fault = f"the device's log cannot be written: {error}"
                self.is_host_fault = True
            bind_threads(self.pid, self._thread_cpus)  # its sandbox forbids it
            signal.setitimer(signal.ITIMER_REAL, float(seconds))
        else:
            signal.setitimer(signal.ITIMER_REAL, 0)
            self.cause = " ".join(quote_untrusted(text, None).split())
        if not self.fault:
            with suppress(ConnectionError, BlockingIOError):  # it reads no answers
                self._end.send(_END, socket.MSG_DONTWAIT)

    def _log_output(self, chunk: bytes) -> bool:
        self._output_bytes += len(chunk)
        for line in chunk.decode(errors="replace").splitlines():
            log.warning("a session printed: %s", quote_untrusted(line, None))
        if chunk and self._output_bytes <= OUTPUT_BYTES:
            return True
        limit_kib = OUTPUT_BYTES >> 10
        log.warning("a session printed more than %d KiB; the rest is discarded", limit_kib)
        self._output.close()
        return False
