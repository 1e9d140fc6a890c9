# mypy: disable-error-code="empty-body"
"""The process that finds out what a CPU's cores compute at most."""

from workers.children.child import Child
from workers.children.method import method


class Peak(Child):
    MODULE = "workers.tvm.peak"

    @method(limit_sec=120.0)
    def peak_gflops(self, target: str, cores: int) -> float:
        """Products and sums in single precision on so many of a target's cores; takes a second or two."""
