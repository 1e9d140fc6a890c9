"""Starts a part of the product with counters of its statements and of the time in its Celery tasks.

python -P -m benchmarks.scale.launch FOLDER KIND -- WORDS OF MALLORN

The counters go to FOLDER whenever its file `mark` changes.
"""

import json
import os
import sys
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final

from sqlalchemy import Engine, event

MARK: Final = "mark"
LOOK_SEC: Final = 0.1
END_CHARS: Final = 150  # of each end of a long statement, whose middle is its columns


class Counters:
    """Statements, transactions and tasks of this process, by name, since it started."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: Counter[str] = Counter()
        self._statements: dict[str, list[float]] = defaultdict(lambda: [0, 0.0])
        self._busy: dict[int, tuple[str, float]] = {}  # task in progress, by thread
        self._busy_sec: defaultdict[str, float] = defaultdict(float)

    def listen(self, kind: str) -> None:
        """Count what all engines of this process do from now on; show `kind` to Postgres."""

        def connect(_dialect: Any, _record: Any, _args: Any, kwargs: dict[str, Any]) -> None:
            kwargs["application_name"] = f"mallorn {kind}"

        def before(_connection: Any, _cursor: Any, _sql: str, _values: Any, context: Any, _many: Any) -> None:
            context.scale_began_sec = time.perf_counter()

        def after(_connection: Any, _cursor: Any, sql: str, _values: Any, context: Any, _many: Any) -> None:
            self._add_statement(sql, time.perf_counter() - context.scale_began_sec)

        event.listen(Engine, "do_connect", connect)
        event.listen(Engine, "before_cursor_execute", before)
        event.listen(Engine, "after_cursor_execute", after)
        for name in ("begin", "commit", "rollback"):
            event.listen(Engine, name, partial(self._add, name))

    @contextmanager
    def task(self, name: str) -> Iterator[None]:
        """Count the block as the time of a task."""
        self.begin_task(name)
        try:
            yield
        finally:
            self.end_task()

    def begin_task(self, name: str) -> None:
        self._busy[threading.get_ident()] = name, time.monotonic()

    def end_task(self) -> None:
        name, began_sec = self._busy.pop(threading.get_ident())
        with self._lock:
            self._counts[f"task {name}"] += 1
            self._busy_sec[name] += time.monotonic() - began_sec

    def snapshot(self) -> dict[str, Any]:
        """Return all counters so far; tasks in progress count until now."""
        now_sec = time.monotonic()
        with self._lock:
            busy_sec = dict(self._busy_sec)
            for name, began_sec in list(self._busy.values()):
                busy_sec[name] = busy_sec.get(name, 0.0) + now_sec - began_sec
            statements = {text: list(figures) for text, figures in self._statements.items()}
            return {"counts": dict(self._counts), "busy_sec": busy_sec, "statements": statements}

    def _add(self, name: str, *_connection: Any) -> None:
        with self._lock:
            self._counts[name] += 1

    def _add_statement(self, sql: str, sec: float) -> None:
        with self._lock:
            figures = self._statements[shorten(sql)]
            figures[0] += 1
            figures[1] += sec


def shorten(sql: str) -> str:
    """Return a statement on one line, without the middle of a long one."""
    text = " ".join(sql.split())
    return text if len(text) <= 2 * END_CHARS else f"{text[:END_CHARS]} ... {text[-END_CHARS:]}"


def dump_on_marks(counters: Counters, folder: Path, kind: str) -> None:
    """Write the counters to `folder` whenever the text of its mark changes; never return."""
    last = ""
    while True:
        text = read_mark(folder)
        if text != last:
            path = folder / f"{os.getpid()}.{text}.counters"
            temporary = path.with_suffix(".part")
            temporary.write_text(json.dumps({"kind": kind, **counters.snapshot()}))
            temporary.rename(path)
            last = text
        time.sleep(LOOK_SEC)


def read_mark(folder: Path) -> str:
    """Return the text of the last mark; empty before the first."""
    path = folder / MARK
    return path.read_text() if path.exists() else ""


def set_mark(folder: Path, text: str) -> None:
    """Ask all processes of a run for their counters under the name `text`."""
    temporary = folder / f"{MARK}.part"
    temporary.write_text(text)
    temporary.rename(folder / MARK)


def main() -> None:
    """Start counting, then do what `mallorn` does with these words."""
    folder, kind = Path(sys.argv[1]), sys.argv[2]
    counters = Counters()
    counters.listen(kind)
    arguments = counters, folder, kind
    threading.Thread(target=dump_on_marks, args=arguments, name="scale-counters", daemon=True).start()
    from mallorn.cli.main import app

    _count_celery_tasks(counters)
    app(args=sys.argv[4:], prog_name="mallorn")


def _count_celery_tasks(counters: Counters) -> None:
    from celery.signals import task_postrun, task_prerun

    task_prerun.connect(lambda task, **_signal: counters.begin_task(task.name), weak=False)
    task_postrun.connect(lambda **_signal: counters.end_task(), weak=False)


if __name__ == "__main__":
    main()
