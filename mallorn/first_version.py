"""What a job exports first: fetched at once, told in a line, and the job goes on to a better one."""

from dataclasses import dataclass
from pathlib import Path

from mallorn.core.errors import MallornError, Unavailable
from mallorn.core.values.event import ExportedEvent
from mallorn.core.values.job import JobStatus
from mallorn.job import Job


@dataclass
class FirstVersion:
    """Fetches a job's first version into a directory, or names the command that does."""

    job: Job
    to: Path | str
    is_told: bool = False

    def news(self, status: JobStatus) -> str:
        """The line about it, once; empty before there is one, and afterwards.

        What cannot be written is told, too: the job goes on, and its end raises.
        """
        if self.is_told or not status.exported or status.report is not None or status.state.final:
            return ""
        try:
            place = self.to if isinstance(self.to, str) else self.job.schedules(self.to)
            told = next((event.told for event in self.job.events() if event.kind == "exported"), None)
            when = "is exported"
            if isinstance(told, ExportedEvent):
                ratio = "" if told.ratio is None else f", {told.ratio:.2f} of onnxruntime"
                when = f"after {told.sec:.0f} s{ratio}"
            line = f"first version {when}: {place}"
        except Unavailable:
            return ""  # the next look asks again
        except MallornError as error:
            line = error.message
        self.is_told = True
        return line
