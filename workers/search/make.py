"""From the names in a job's options to a searcher."""

from mallorn.core.names import resolve
from workers.search.base import Searcher
from workers.search.pooled import PooledSearcher


def make_searcher(search: str, sampler: str) -> Searcher:
    """The searcher registered as `search`; one that gathers a pool lets `sampler` choose from it."""
    kind: type[Searcher] = resolve("search", search)
    return kind(sampler=resolve("sampler", sampler)()) if issubclass(kind, PooledSearcher) else kind()
