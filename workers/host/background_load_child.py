"""Child process that computes and streams memory once it is told to, until it is killed."""

import threading
from typing import Final

import numpy as np

from workers.host.background_load import Stressor
from workers.subprocesses.serve_calls import serve
from workers.subprocesses.typed_method import serving

STREAMED: Final = 1 << 22  # numbers of four bytes: with their copy more than most last caches hold
COMPUTED: Final = 1 << 12  # within the first cache
COMPUTINGS: Final = 64


def keep_busy() -> None:
    """Return once the work has begun."""
    begun = threading.Event()
    threading.Thread(target=_work, args=(begun,), daemon=True).start()
    begun.wait()


def _work(begun: threading.Event) -> None:
    there, back = np.ones(STREAMED, "float32"), np.ones(STREAMED, "float32")
    small = np.ones(COMPUTED, "float32")
    begun.set()
    while True:
        np.add(there, 1.0, out=back)
        there, back = back, there
        for _ in range(COMPUTINGS):
            np.sqrt(small, out=small)


if __name__ == "__main__":
    serve(serving(Stressor, Stressor.keep_busy.by(keep_busy)))
