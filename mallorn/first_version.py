"""Download of the first version of a job's schedules while the job still improves them."""

from dataclasses import dataclass
from pathlib import Path

from mallorn.core.errors import MallornError, Unavailable
from mallorn.core.values.event import ExportedEvent
from mallorn.core.values.job import JobStatus
from mallorn.job import Job


@dataclass
class FirstVersion:
    """Downloads a job's first version into a directory, or prints the command for it.

    `to` is the directory, or a string with the command.
    """

    job: Job
    to: Path | str
    is_told: bool = False

    def news(self, status: JobStatus) -> str:
        """Return one line about the first version once it appears; empty in all other calls.

        If the files cannot be written, the line is the error; the job continues, and its end
        raises it.
        """
        if self.is_told or not status.exported or status.report is not None or status.state.final:
            return ""
        try:
            place = self.to if isinstance(self.to, str) else self.job.schedules(self.to)
            exported_event = next((event.told for event in self.job.events() if event.kind == "exported"), None)
            when = "is exported"
            if isinstance(exported_event, ExportedEvent):
                ratio = "" if exported_event.ratio is None else f", {exported_event.ratio:.2f} of onnxruntime"
                when = f"after {exported_event.sec:.0f} s{ratio}"
            line = f"first version {when}: {place}"
        except Unavailable:
            return ""  # the next call tries again
        except MallornError as error:
            line = error.message
        self.is_told = True
        return line
