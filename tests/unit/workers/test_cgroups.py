"""What control groups allow is seen wherever the limit was set: in our own group, or in one far above."""

from collections.abc import Mapping

import pytest

from mallorn.workers.subprocesses.cgroups import cpu_quota, memory_left, memory_limit
from tests.fixtures.control_groups import V2_MOUNT, MadeUp

V1 = {"cpu,cpuacct": "/ cgroup cgroup rw,cpu,cpuacct", "memory": "/ cgroup cgroup rw,memory"}
HOSTS_V1 = {"cpu": "/docker/c0 cgroup cgroup rw,cpu,cpuacct", "memory": "/docker/c0 cgroup cgroup rw,memory"}
BOTH = {"cpu": "/ cgroup cgroup rw,cpu", "unified": "/ cgroup2 cgroup2 rw"}
V1_QUOTA = {"cpu.cfs_quota_us": "150000\n", "cpu.cfs_period_us": "100000\n"}


def under(folder: str, files: Mapping[str, str]) -> dict[str, str]:
    return {f"{folder}/{name}": text for name, text in files.items()}


@pytest.mark.parametrize(
    ("membership", "mounts", "files", "processors"),
    [
        ("0::/app", V2_MOUNT, {"app/cpu.max": "150000 100000\n"}, 1.5),
        ("0::/app", V2_MOUNT, {"app/cpu.max": "max 100000\n"}, None),
        ("0::/", V2_MOUNT, {"cpu.max": "200000 100000\n"}, 2.0),
        (
            "0::/a.slice/b.scope",
            V2_MOUNT,
            {"a.slice/cpu.max": "200000 100000\n", "a.slice/b.scope/cpu.max": "max 100000\n"},
            2.0,
        ),
        (
            "0::/a.slice/b.scope",
            V2_MOUNT,
            {"a.slice/cpu.max": "200000 100000\n", "a.slice/b.scope/cpu.max": "50000 100000\n"},
            0.5,
        ),
        ("0::/system.slice/c0", {".": "/system.slice/c0 cgroup2 c rw"}, {"cpu.max": "300000 100000\n"}, 3.0),
        ("4:cpu,cpuacct:/app\n0::/", V1, under("cpu,cpuacct/app", V1_QUOTA), 1.5),
        ("4:cpuacct,cpu:/app/deep\n", V1, under("cpu,cpuacct/app", V1_QUOTA), 1.5),
        ("4:cpu,cpuacct:/docker/c0\n", HOSTS_V1, under("cpu", V1_QUOTA), 1.5),
        ("4:cpu,cpuacct:/docker/c0/in\n", HOSTS_V1, under("cpu/in", V1_QUOTA), 1.5),
        ("4:cpu:/\n", V1, under("cpu,cpuacct", {**V1_QUOTA, "cpu.cfs_quota_us": "-1\n"}), None),
        ("1:cpu:/app\n0::/", BOTH, under("cpu/app", V1_QUOTA), 1.5),
        ("0::/of/the/host", V2_MOUNT, {"cpu.max": "100000 100000\n"}, 1.0),
        ("0::/app", {}, {}, None),
    ],
    ids=[
        *("v2", "v2 without a limit", "v2 in a container", "a slice above", "the least of two"),
        *("v2, the host's name", "v1", "v1, a group above", "v1 in docker", "v1, a group in docker"),
        *("v1 without a limit", "both versions", "a group that is not seen", "nothing mounted"),
    ],
)
def test_the_least_quota_of_all_groups_counts(
    membership: str,
    mounts: Mapping[str, str],
    files: Mapping[str, str],
    processors: float | None,
    made_up_groups: MadeUp,
) -> None:
    made_up_groups(membership, mounts, files)
    assert cpu_quota() == processors


@pytest.mark.parametrize(
    ("membership", "mounts", "files", "limit", "left"),
    [
        (
            "0::/a/b",
            V2_MOUNT,
            {
                **under("a", {"memory.max": "900\n", "memory.current": "800\n"}),
                **under("a/b", {"memory.max": "500\n", "memory.current": "100\n"}),
            },
            500,
            100,
        ),
        (
            "9:memory:/docker/c0",
            HOSTS_V1,
            under("memory", {"memory.limit_in_bytes": "700\n", "memory.usage_in_bytes": "200\n"}),
            700,
            500,
        ),
        (
            "0::/",
            V2_MOUNT,
            {"memory.max": "700\n", "memory.current": "600\n", "memory.stat": "anon 9\ninactive_file 400\n"},
            700,
            500,
        ),
        (
            "9:memory:/docker/c0",
            HOSTS_V1,
            under(
                "memory",
                {
                    "memory.limit_in_bytes": "700\n",
                    "memory.usage_in_bytes": "600\n",
                    "memory.stat": "inactive_file 300\nrss 9\ntotal_inactive_file 400\n",
                },
            ),
            700,
            500,
        ),
        ("0::/", V2_MOUNT, {"memory.max": "max\n", "memory.current": "200\n"}, None, None),
        ("0::/", V2_MOUNT, {}, None, None),
    ],
    ids=[
        "a slice",
        "v1 in docker",
        "files are only cached",
        "v1, cached files count once",
        "no limit",
        "no files",
    ],
)
def test_the_least_memory_of_all_groups_counts(
    membership: str,
    mounts: Mapping[str, str],
    files: Mapping[str, str],
    limit: int | None,
    left: int | None,
    made_up_groups: MadeUp,
) -> None:
    made_up_groups(membership, mounts, files)
    assert (memory_limit(), memory_left()) == (limit, left)
