"""A job in a notebook cell, which follows it while it runs."""

import time
from typing import Final, Protocol

from mallorn.core.errors import InvalidRequest
from mallorn.core.values.job import JobStatus

UPDATE_SEC: Final = 2.0


class Card(Protocol):
    """What shows itself anew each time it is looked at: a `mallorn.Job`."""

    @property
    def status(self) -> JobStatus: ...

    @property
    def stuck(self) -> bool: ...

    def _repr_html_(self) -> str: ...


def in_notebook() -> bool:
    """Whether this Python is one that shows what it is given, as Jupyter's kernel."""
    try:
        from IPython import get_ipython
    except ModuleNotFoundError:
        return False
    shell = get_ipython()
    return shell is not None and getattr(shell, "kernel", None) is not None


def watch(job: Card) -> None:
    """Show a job's card below the cell and renew it in place until the job ends.

    Raises InvalidRequest outside of a notebook.
    """
    if not in_notebook():
        raise InvalidRequest("there is no notebook here to show the job in", hint="job.wait()")
    from IPython.display import HTML, display

    shown = display(HTML(job._repr_html_()), display_id=True)
    while not (job.stuck or job.status.state.final):
        time.sleep(UPDATE_SEC)
        shown.update(HTML(job._repr_html_()))
