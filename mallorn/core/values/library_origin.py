"""Where the schedules of a library come from, for its metadata."""

from mallorn.core.values.base import Value
from mallorn.core.values.manifest import Manifest, TunedWorkload


class LibraryOrigin(Value):
    """The job, versions and workloads that a library's metadata names; all may be unknown."""

    job: str = ""
    model: str = ""
    input_ranges: dict[str, list[int]] = {}  # smallest and largest value of integer inputs
    versions: dict[str, str] = {}
    workloads: list[TunedWorkload] = []
    digests: dict[str, str] = {}  # SHA-256, by the name of what was hashed


def origin_in_manifest(manifest: Manifest) -> LibraryOrigin:
    """Return the origin that a manifest of exported schedules names."""
    return LibraryOrigin(
        job=manifest.job,
        model=manifest.model,
        input_ranges=manifest.input_ranges,
        versions=manifest.versions,
        workloads=manifest.workloads,
    )
