"""What an identity provider publishes of itself, kept for a while: strangers' visits cost it nothing."""

import math
import time
from collections.abc import Callable
from threading import Lock
from typing import Final, Generic, TypeVar

from mallorn.core.errors import MallornError, Unavailable

KEPT_SEC: Final = 3600.0
AGAIN_SEC: Final = 10.0
Document = TypeVar("Document")


class ProviderMetadata(Generic[Document]):
    """One document. It is asked for by one visit at a time, and never again within AGAIN_SEC."""

    def __init__(self, ask: Callable[[], Document], clock: Callable[[], float] = time.monotonic) -> None:
        self._ask = ask
        self._clock = clock
        self._lock = Lock()
        self._document: Document | None = None
        self._why_not: MallornError = Unavailable()
        self._got_sec = self._asked_sec = -math.inf

    def read(self, *, anew: bool = False) -> Document:
        """The document, at most KEPT_SEC old; `anew` asks again, if that was not just done.

        Raises Unavailable.
        """
        with self._lock:
            if (anew or not self._good()) and self._clock() - self._asked_sec >= AGAIN_SEC:
                self._renew()
            if self._document is not None and self._good():
                return self._document
            raise Unavailable(self._why_not.message, hint=self._why_not.hint)

    def _good(self) -> bool:
        return self._clock() - self._got_sec < KEPT_SEC

    def _renew(self) -> None:
        try:
            self._document, self._got_sec = self._ask(), self._clock()
        except MallornError as error:
            self._why_not = error
        finally:
            self._asked_sec = self._clock()
