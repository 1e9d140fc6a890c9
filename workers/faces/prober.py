# mypy: disable-error-code="empty-body"
"""The process that runs probes on this host's own cores, with no device between."""

from collections.abc import Sequence

from workers.children.child import Child
from workers.children.method import method
from workers.device.slice_times import Slice
from workers.faces.probes import Probe


class Prober(Child):
    MODULE = "workers.tvm.prober"

    @method(limit_sec=60.0)
    def clock(self, folder: str, probes: Sequence[Probe]) -> list[Slice]:
        """The shortest run of each probe of one library in `folder`."""
