"""Child process that, after `keep_busy`, computes and streams memory until it is killed."""

import threading
from typing import Final

import numpy as np

from mallorn.workers.host.background_load import Stressor
from mallorn.workers.subprocesses.serve_calls import serve
from mallorn.workers.subprocesses.typed_method import collect_handlers

STREAMED: Final = 1 << 22  # float32 numbers: twice as many exceed most last-level caches
COMPUTED: Final = 1 << 12  # float32 numbers that fit in the first-level cache
COMPUTINGS: Final = 64


def keep_busy() -> None:
    """Start the work in a thread and return once it has begun."""
    started = threading.Event()
    threading.Thread(target=_compute_and_stream, args=(started,), daemon=True).start()
    started.wait()


def _compute_and_stream(started: threading.Event) -> None:
    source, target = np.ones(STREAMED, "float32"), np.ones(STREAMED, "float32")
    small = np.ones(COMPUTED, "float32")
    started.set()
    while True:
        np.add(source, 1.0, out=target)
        source, target = target, source
        for _ in range(COMPUTINGS):
            np.sqrt(small, out=small)


if __name__ == "__main__":
    serve(collect_handlers(Stressor, Stressor.keep_busy.make_handler(keep_busy)))
