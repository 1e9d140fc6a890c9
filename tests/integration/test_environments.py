"""No secret of an operator's environment reaches a process that runs what strangers made."""

import os
from collections.abc import Iterator, Mapping
from pathlib import Path

import psutil
import pytest

from mallorn.core.errors import Unavailable
from mallorn.core.fleet_key import FleetKey
from mallorn.core.targets import Target
from mallorn.workers.detached.run_batch import DeviceProcess
from mallorn.workers.device import key_agent
from mallorn.workers.interfaces import candidate_compiler, device_runner, model_compiler, whole_model_engine
from mallorn.workers.interfaces.device_runner import Runner
from mallorn.workers.sandbox.sandbox import allowed_environment
from mallorn.workers.subprocesses.child_process import Child
from tests.fixtures.fleet import running_fleet
from tests.fixtures.waiting import PATIENCE

pytestmark = pytest.mark.usefixtures("executed_children")
KEY = "0123456789abcdef" * 4
SECRETS = (
    *("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_PROFILE"),
    *("GOOGLE_APPLICATION_CREDENTIALS", "GCP_SERVICE_KEY", "AZURE_CLIENT_SECRET", "AZURE_STORAGE_KEY"),
    *("GITHUB_TOKEN", "GH_TOKEN", "GITLAB_TOKEN", "HF_TOKEN", "WANDB_API_KEY", "OPENAI_API_KEY"),
    *("NVIDIA_API_KEY", "CUDA_DOWNLOAD_TOKEN", "AMD_PORTAL_PASSWORD", "PYTHON_KEYRING_PASSWORD"),
    *("TVM_ARTIFACT_URL", "PIP_INDEX_URL", "HTTPS_PROXY", "DATABASE_URL", "PGPASSWORD", "REDIS_PASSWORD"),
    *("MALLORN_RPC_KEY", "MALLORN_API_KEY", "MALLORN_API_KEYS", "MALLORN_DATABASE_URL"),
    *("MALLORN_OIDC_CLIENT_SECRET", "MALLORN_ARTIFACTS", "SSH_AUTH_SOCK", "NETRC"),
)


def environment(pid: int) -> bytes:
    return Path(f"/proc/{pid}/environ").read_bytes()


@pytest.fixture
def planted(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in SECRETS:
        monkeypatch.setenv(name, f"{KEY},{name}")


def leaked(pid: int) -> list[str]:
    """Names that are in a process's environment, and `a value` where one is."""
    names = [each.partition(b"=")[0].decode() for each in environment(pid).split(b"\0")]
    return sorted({*SECRETS} & {*names}) + ["a value"] * (KEY.encode() in environment(pid))


def children(kind: type[Child]) -> Iterator[type[Child]]:
    """The classes of our own helper processes, without that of batches: their user's script starts it."""
    for each in kind.__subclasses__():
        if (
            each.__module__.startswith(("mallorn.workers.", "mallorn_research."))
            and each is not DeviceProcess
        ):
            yield each
        yield from children(each)


@pytest.mark.usefixtures("planted")
def test_no_helper_process_has_a_secret_of_its_parent() -> None:
    assert {module.__name__ for module in (candidate_compiler, device_runner, model_compiler)}
    found = set(children(Child))
    assert {whole_model_engine.Engine, Runner} <= found
    for kind in found:
        with kind() as child:
            child.start()
            assert child.pid is not None
            assert leaked(child.pid) == [], kind


@pytest.mark.usefixtures("planted")
@pytest.mark.parametrize("key", ["", KEY], ids=["without a key", "with a key"])
def test_neither_a_device_nor_its_session_nor_its_keeper_has_one(
    tmp_path: Path, local_target: Target, key: str
) -> None:
    room = tmp_path / "room"
    room.mkdir()
    with running_fleet(tmp_path, key) as fleet, Runner(key=FleetKey(key), room=room) as runner:
        fleet.start_device(local_target)
        fleet.wait_free(local_target)
        runner.take_device(fleet.address, local_target.text, wait_sec=PATIENCE)
        device = psutil.Process(fleet.device.process.pid)
        processes = [device, *device.children(recursive=True)]
        assert len(processes) == (3 if key else 2)
        assert [leaked(each.pid) for each in processes if readable(each.pid)] == [[]] * len(processes)
        assert runner.pid is not None
        assert leaked(runner.pid) == []


def readable(pid: int) -> bool:
    """Whether anybody of this user may look: the keeper forbids it to all but root."""
    return os.geteuid() == 0 or os.access(f"/proc/{pid}/environ", os.R_OK)


def test_what_compilers_and_drivers_need_stays() -> None:
    given: Mapping[str, str] = dict.fromkeys(
        ("PATH", "CUDA_VISIBLE_DEVICES", "NVIDIA_DRIVER_CAPABILITIES", "PYTHONHASHSEED", "OMP_PROC_BIND"), "1"
    )
    assert allowed_environment(given) == given
    assert key_agent.DEVICE_VARIABLES[0] not in allowed_environment({"MALLORN_TRACKER": "127.0.0.1:1"})


WITHOUT_SECCOMP = (
    "import mallorn.workers.sandbox.sandbox as s; s.enter_sandbox = lambda _walls: 'without seccomp'\n"
)
REQUIRED = """
import functools, mallorn.workers.device.serve_device as d
d.serve_device = functools.partial(d.serve_device, sandbox="require")
"""


def test_a_session_whose_walls_do_not_close_serves_nobody_where_they_are_required(
    tmp_path: Path, local_target: Target
) -> None:
    with running_fleet(tmp_path) as fleet, Runner(room=tmp_path) as runner:
        fleet.start_device(local_target, before=WITHOUT_SECCOMP + REQUIRED)
        fleet.wait_free(local_target)
        with pytest.raises(Unavailable, match="without seccomp; all of it is required") as told:
            runner.take_device(fleet.address, local_target.text, wait_sec=PATIENCE)
        assert "MALLORN_SANDBOX=best-effort" in told.value.message


def test_a_session_whose_walls_do_not_close_serves_where_they_are_not_required(
    tmp_path: Path, local_target: Target
) -> None:
    with running_fleet(tmp_path) as fleet, Runner(room=tmp_path) as runner:
        fleet.start_device(local_target, before=WITHOUT_SECCOMP)
        fleet.wait_free(local_target)
        assert runner.take_device(fleet.address, local_target.text, wait_sec=PATIENCE).name == "device"
