"""Download of the first version of a job's schedules while the job still improves them."""

from dataclasses import dataclass
from pathlib import Path

from mallorn.core.errors import MallornError, Unavailable
from mallorn.core.values.event import ExportedEvent
from mallorn.core.values.job import JobStatus
from mallorn.job import Job


@dataclass
class FirstVersion:
    """Downloads a job's first version; if `to` is a text, it is the command shown instead."""

    job: Job
    to: Path | str
    is_told: bool = False

    def news(self, status: JobStatus) -> str:
        """Return one line about the first version once it appears; empty in all other calls.

        If the files cannot be written, the line is the error message; the job's end raises it.
        """
        if self.is_told or not status.exported or status.report is not None or status.state.final:
            return ""
        try:
            location = self.to if isinstance(self.to, str) else self.job.schedules(self.to)
            export = next((event.told for event in self.job.events() if event.kind == "exported"), None)
            when = "is exported"
            if isinstance(export, ExportedEvent):
                ratio = "" if export.ratio is None else f", {export.ratio:.2f} of onnxruntime"
                when = f"after {export.sec:.0f} s{ratio}"
            line = f"first version {when}: {location}"
        except Unavailable:
            return ""  # the next call tries again
        except MallornError as error:
            line = error.message
        self.is_told = True
        return line
