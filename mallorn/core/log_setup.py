"""Logging of all processes: a line per event on stderr with time, level and job, and errors of loops."""

import json
import logging
import math
import os
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Final

from mallorn.core.errors import StorageFull, Unavailable
from mallorn.core.format_text import escape_control_characters
from mallorn.core.redaction import redact
from mallorn.core.settings import Settings, unknown_variables

log = logging.getLogger(__name__)
#: An error that repeats in every turn would otherwise fill the log.
TOLD_EVERY_SEC: Final = 60.0
_logged_sec: dict[tuple[str, type[Exception]], float] = {}
LONGEST: Final = 8_000  # characters of a message, which may contain untrusted text
Facts = Mapping[str, object]
_about: ContextVar[Facts] = ContextVar("about", default=MappingProxyType({}))


@contextmanager
def log_facts(**facts: object) -> Iterator[None]:
    """Add facts, such as job, round and attempt, to everything that is logged in the block.

    A thread has them only if it runs in a copy of its starter's context (contextvars).
    """
    token = _about.set({**_about.get(), **facts})
    try:
        yield
    finally:
        _about.reset(token)


def add_log_facts(**facts: object) -> None:
    """Add facts to everything that is logged in the rest of the enclosing `log_facts` block."""
    _about.set({**_about.get(), **facts})


def set_up(part: str, settings: Settings) -> None:
    """Send the logs of this process and its libraries to stderr in the set format."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines(part) if settings.log_format == "json" else TextLines(part))
    logging.basicConfig(level=settings.log_level.upper(), handlers=[handler], force=True)
    logging.captureWarnings(True)
    # Alembic logs its plug-ins whenever a process reads the version of the tables.
    logging.getLogger("alembic").setLevel(logging.WARNING)
    for sentence in unknown_variables(os.environ):
        log.warning(sentence)


class TextLines(logging.Formatter):
    """Formats records as `TIME LEVEL PART LOGGER: MESSAGE (job=1f round=7)`, redacted."""

    def __init__(self, part: str) -> None:
        super().__init__(f"%(asctime)s %(levelname)s {part} %(name)s: %(message)s")

    def format(self, record: logging.LogRecord) -> str:
        text = super().format(record)
        return escape_control_characters(redact(text) if record.exc_info else _short(text))

    def formatTime(self, record: logging.LogRecord, datefmt: str | None = None) -> str:
        return _time(record)

    def formatMessage(self, record: logging.LogRecord) -> str:
        facts = " ".join(f"{name}={value}" for name, value in _about.get().items())
        line = super().formatMessage(record)
        return f"{line} ({facts})" if facts else line


class JsonLines(logging.Formatter):
    """Formats a record as a line of JSON, with the `log_facts` and any traceback."""

    def __init__(self, part: str) -> None:
        super().__init__()
        self._part = part

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, object] = {
            "time": _time(record),
            "level": record.levelname.lower(),
            "part": self._part,
            "pid": record.process,
            "logger": record.name,
            "message": _short(record.getMessage()),
            **_about.get(),
        }
        if record.exc_info:
            line["error"] = redact(self.formatException(record.exc_info))
        return json.dumps(line, default=str)


def _short(text: str) -> str:
    """Cut a text to LONGEST only after redacting it, so that no part of a secret stays."""
    text = redact(text)
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}... ({len(text):,} characters)"


def _time(record: logging.LogRecord) -> str:
    moment = datetime.fromtimestamp(record.created, UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


class Turn:
    """A turn of a service's loop, which has run without a gap for `steady_sec` seconds."""

    def __init__(self, steady_sec: float = math.inf) -> None:
        self.steady_sec = steady_sec
        self.whole = True
        self.away = False  # the database is unavailable, so similar parts can be skipped

    @contextmanager
    def log_part_errors(self, words: str) -> Iterator[None]:
        """Run a part of the turn in the block; log its error instead of raising it."""
        try:
            yield
        except Exception as error:
            self.whole, self.away = False, isinstance(error, Unavailable | StorageFull)
            log_survived_error(words, error)


def log_survived_error(words: str, error: Exception) -> None:
    """Log an error that a loop survives, at most once a minute per part and error class."""
    now_sec, key = time.monotonic(), (words, type(error))
    if now_sec - _logged_sec.get(key, -math.inf) >= TOLD_EVERY_SEC:
        _logged_sec[key] = now_sec
        log.error("%s: %s: %s", words, type(error).__name__, error, exc_info=error)
