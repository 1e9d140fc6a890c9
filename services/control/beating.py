"""Beat by the monotonic clock. Celery's own looks at the wall clock: set back by an hour it rests for one."""

import math
import time
from typing import Any, Final

from celery.beat import Scheduler

NAP_SEC: Final = 0.5


class Steady(Scheduler):  # type: ignore[misc]
    """Sends what is due. Nothing is kept: when it last was sent is worth nothing after a restart."""

    def tick(self, *_: Any, **__: Any) -> float:
        """One look; how long to sleep until the next."""
        sent = self.__dict__.setdefault("sent_sec", {})
        for name, entry in self.schedule.items():
            if time.monotonic() - sent.get(name, -math.inf) >= entry.schedule.run_every.total_seconds():
                sent[name] = time.monotonic()
                self.apply_entry(entry, producer=self.producer)
        return NAP_SEC
