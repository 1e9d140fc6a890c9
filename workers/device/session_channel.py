"""What a session tells its device: when candidates begin and end, why it ends, what it prints.

A session runs untrusted native code, so it opens no file of its device. The device writes the
log of executions, and its own clock keeps the deadline.
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

from mallorn.workers.device.measuring_conditions import bind_threads

log = logging.getLogger(__name__)
#: First byte of each message.
_BEGIN, _END, _CAUSE, _BIND = b"B", b"E", b"C", b"T"
_MESSAGE_BYTES: Final = 1000
#: Limits per session: bytes of messages, each of which counts at least 100, and of output.
MESSAGES_BYTES: Final = 4 << 20
OUTPUT_BYTES: Final = 64 << 10


class DeviceLink:
    """The session's end of its channel to the device. Methods wait for the device's answer."""

    def __init__(self, end: socket.socket) -> None:
        self._end = end

    def begin_candidate(self, key: str, deadline_sec: float) -> None:
        """Have the device log one execution and start its deadline."""
        self._request(_BEGIN, f"{deadline_sec:.6f} {key}")

    def end_candidate(self) -> None:
        self._request(_END)

    def report_cause(self, text: str) -> None:
        """Tell the device why this process is about to exit."""
        self._request(_CAUSE, text)

    def bind_threads(self) -> None:
        """Have the device bind this process's threads to CPUs: the sandbox forbids it here."""
        self._request(_BIND)

    def _request(self, kind: bytes, text: str = "") -> None:
        self._end.send((kind + text.encode())[:_MESSAGE_BYTES])
        if not self._end.recv(1):
            os._exit(1)


class SessionMonitor:
    """The device's end. `violation` is how the session broke the protocol, `host_fault` what
    the device could not do; after either, and at the end of messages, it `must_end`."""

    def __init__(self, log_path: Path | None, thread_cpus: Sequence[Collection[int]]) -> None:
        self.cause = self.violation = self.host_fault = ""
        self.must_end = False
        self._end, self._session_end = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._end.setblocking(False)
        output_fd, session_output_fd = os.pipe()
        os.set_blocking(output_fd, False)
        self._output, self._session_output = os.fdopen(output_fd, "rb", 0), os.fdopen(session_output_fd, "wb")
        self._pid = 0
        self._log_path, self._thread_cpus = log_path, thread_cpus
        self._message_bytes = self._output_bytes = 0

    def enter_session(self) -> DeviceLink:
        """In the session's process: redirect its output to the device; return its link."""
        for number in (1, 2):
            os.dup2(self._session_output.fileno(), number)
        for device_end in (self._end, self._output, self._session_output):
            device_end.close()
        return DeviceLink(self._session_end)

    def watch(self, pid: int) -> None:
        """In the device: watch the session's process `pid`."""
        self._pid = pid
        self._session_end.close()
        self._session_output.close()

    def descriptors(self) -> list[int]:
        """Return the descriptors to poll; pass those that are ready to `read_once`."""
        return [self._end.fileno(), *([] if self._output.closed else [self._output.fileno()])]

    def read_once(self, number: int) -> bool:
        """Read what a descriptor has now; return whether there may be more."""
        try:
            return self._answer_message() if number == self._end.fileno() else self._log_output()
        except BlockingIOError:
            return False
        except (OSError, ValueError, OverflowError) as error:
            self.violation = f"the session broke its protocol: {_escape(str(error))}"
            self.must_end = True
            return False

    def close(self) -> None:
        """Read what the ended session left; stop its deadline; close all descriptors."""
        for number in self.descriptors():
            while self.read_once(number):
                pass
        signal.setitimer(signal.ITIMER_REAL, 0)
        self._end.close()
        self._output.close()

    def _answer_message(self) -> bool:
        message = self._end.recv(_MESSAGE_BYTES)
        kind, text = message[:1], message[1:].decode(errors="replace")
        self._message_bytes += max(len(message), 100)
        if self._message_bytes > MESSAGES_BYTES:
            raise ValueError(f"its messages have more than {MESSAGES_BYTES >> 20} MiB")
        self.must_end = self.must_end or not message
        if self.must_end:
            return False
        if kind == _BEGIN:
            seconds, _, key = text.partition(" ")
            self._log_execution(key)
            signal.setitimer(signal.ITIMER_REAL, float(seconds))
        elif kind == _END:
            signal.setitimer(signal.ITIMER_REAL, 0)
        elif kind == _CAUSE:
            self.cause = " ".join(_escape(text).split())
        elif kind == _BIND:
            bind_threads(self._pid, self._thread_cpus)
        self.must_end = bool(self.host_fault)
        if not self.must_end:
            with suppress(BlockingIOError, ConnectionError):  # it does not read, or has ended
                self._end.send(kind)
        return True

    def _log_execution(self, key: str) -> None:
        """Append a line with the time, the key and the session's pid, before the candidate runs."""
        if self._log_path is not None:
            try:
                with self._log_path.open("ab", buffering=0) as file:
                    file.write(f"{time.time():.6f}\t{_escape(key)}\t{self._pid}\n".encode())
            except OSError as error:
                self.host_fault = f"the device's log cannot be written: {error}"

    def _log_output(self) -> bool:
        chunk = self._output.read(4096)
        if chunk is None:
            return False
        self._output_bytes += len(chunk)
        for line in chunk.decode(errors="replace").splitlines():
            log.warning("a session printed: %s", _escape(line))
        if self._output_bytes > OUTPUT_BYTES:
            log.warning("a session printed more than %d KiB; the rest is discarded", OUTPUT_BYTES >> 10)
        if not chunk or self._output_bytes > OUTPUT_BYTES:
            self._output.close()
        return not self._output.closed


def _escape(text: str) -> str:
    return text if text.isprintable() else ascii(text)
