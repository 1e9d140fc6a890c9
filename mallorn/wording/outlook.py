"""What a job may still win, in words."""

from mallorn.core.text import percent
from mallorn.core.values.job import JobStatus
from mallorn.core.values.outlook import Outlook
from mallorn.wording.units import latency


def headroom(job: JobStatus) -> str:
    """The tasks' latency now, what the machine takes at least, what the end may bring; empty: unknown."""
    ahead = job.outlook
    if ahead is None:
        return ""
    return "; ".join(
        filter(None, [f"{latency(ahead.now_us)} now", _limit(ahead), _end(job, ahead), ahead.left])
    )


def _limit(ahead: Outlook) -> str:
    if ahead.limit_us is None or ahead.reached is None:
        return ""
    return f"this machine takes at least {latency(ahead.limit_us)} ({percent(ahead.reached)} reached)"


def _end(job: JobStatus, ahead: Outlook) -> str:
    if not ahead.trials or job.state.final:
        return ""
    return f"about {latency(ahead.end_us)} expected after some {ahead.trials:,} more trials"
