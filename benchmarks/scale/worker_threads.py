"""An adapter for measuring: several workers as threads of one process.

A worker of today is a process that runs one round at a time, and 64 of them need more memory than a
small host has. Here each worker is a thread with a runtime, a heartbeat, database connections and a
consumer of the product's queues of its own, which calls the product's Celery task functions one at a
time and acknowledges each message afterwards, as Celery's `solo` pool does. Threads of a process share
only the TVM children that propose candidates. In figures of such a run, the processor time a candidate
is that of the product except for Celery's own loop, and Python's lock adds waiting.
"""

import logging
import os
import signal
import threading
from collections.abc import Callable, Sequence
from queue import Queue
from typing import Any, Final

from celery import Celery
from kombu.entity import Queue as MessageQueue

from benchmarks.scale.launch import Counters
from mallorn.core.settings import Settings, settings
from mallorn.workers.interfaces.candidate_compiler import CandidateCompiler
from mallorn.workers.process import worker_runtime
from mallorn.workers.process.heartbeat import Heartbeat
from mallorn.workers.process.worker_runtime import Runtime
from mallorn.workers.subprocesses.shutdown import STOP

COMPILERS: Final = 2  # TVM children of a process
WAIT_SEC: Final = 1.0
log = logging.getLogger(__name__)
_local = threading.local()


class SharedCompiler:
    """Passes each call to a TVM child that no other thread uses."""

    def __init__(self, children: Sequence[CandidateCompiler]) -> None:
        self._children = children
        self._free: Queue[CandidateCompiler] = Queue()
        for child in children:
            self._free.put(child)

    def __getattr__(self, method: str) -> Callable[..., Any]:
        def call(*args: Any, **named: Any) -> Any:
            child = self._free.get()
            try:
                return getattr(child, method)(*args, **named)
            finally:
                self._free.put(child)

        return call

    def kill(self) -> None:
        for child in self._children:
            child.kill()


class ThreadRuntime(Runtime):
    """The runtime of a thread, with a name of its own, on TVM children of the process."""

    def __init__(self, config: Settings, number: int, compiler: SharedCompiler) -> None:
        super().__init__(config)
        self.name = f"{self.name}-{number}"
        self.roll_call = Heartbeat(self.database, self.fleet, self.name)
        self.compiler = compiler  # type: ignore[assignment]

    def validator(self, target: Any) -> Any:
        return self.compiler.validate

    def lower(self, view: str, tir: str, target: str, candidates: Any) -> Any:
        return self.compiler.compute_lowered_features(view, tir, target, candidates)


def run_threads(counters: Counters, count: int, app: Celery, queues: Sequence[str], _name: str) -> None:
    """Run `count` workers as threads of this process until it gets SIGTERM.

    Takes the place of `mallorn.stack.run_celery.run_worker`.
    """
    main_runtime = Runtime(settings())
    size = settings().builders or COMPILERS
    children = [main_runtime._candidate_compiler(f"compiler{number}") for number in range(size)]
    compiler = SharedCompiler(children)
    worker_runtime.runtime = lambda: _local.runtime  # type: ignore[assignment]
    app.loader.import_default_modules()
    app.amqp.queues.select([*queues])
    signal.signal(signal.SIGTERM, lambda *_: STOP.request_stop())
    threads = [
        threading.Thread(
            target=_work, args=(counters, app, queues, number, compiler), name=f"worker-{number}"
        )
        for number in range(count)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    compiler.kill()


def _work(
    counters: Counters, app: Celery, queues: Sequence[str], number: int, compiler: SharedCompiler
) -> None:
    from mallorn.workers import app as product

    _local.runtime = runtime = ThreadRuntime(settings(), number, compiler)
    product._start_worker()

    def receive(body: Any, message: Any) -> None:
        name = message.headers["task"]
        try:
            with counters.task(name):
                app.tasks[name](*body[0], **body[1])
        except Exception:
            log.exception("%s raised", name)
        message.ack()
        product._pause_after_host_fault()

    sources = [MessageQueue(name, routing_key=name) for name in queues]  # type: ignore[no-untyped-call]
    with app.connection_for_read() as connection:
        consumer = connection.Consumer(sources, callbacks=[receive], accept=["json"], prefetch_count=1)
        with consumer:
            while not STOP.requested.is_set():
                try:
                    connection.drain_events(timeout=WAIT_SEC)
                except TimeoutError:
                    continue
    runtime.close()
    log.info("worker %s of process %s ended", number, os.getpid())
