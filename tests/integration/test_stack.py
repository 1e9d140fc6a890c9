"""`mallorn up` for real: all its processes, killed, doubled, interrupted."""

import shutil
import signal
import socket
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import httpx
import psutil
import pytest

from mallorn.stack.data_directory import DataDir, StackInfo
from mallorn.stack.temporary_files import find_abandoned_folders
from tests.fixtures.command_line import assert_refused, clean_environment, mallorn, typed
from tests.fixtures.processes import STOP_SEC, end, family, gone, the_one
from tests.fixtures.service import START_SEC
from tests.fixtures.waiting import PATIENCE, wait_for

PARTS = {"broker", "tracker", "coordinator", "control", "device", "importer", "worker-1"}


@dataclass
class Up:
    """A running `mallorn up`."""

    process: subprocess.Popen[bytes]
    data: DataDir
    output: Path

    @property
    def words(self) -> str:
        return self.output.read_text()

    def info(self) -> StackInfo:
        found = self.data.read_stack()
        assert found is not None
        return found

    def wait_until_ready(self) -> None:
        said = "everything is ready"
        wait_for(lambda: said in self.words or self.process.poll() is not None, said, START_SEC)
        assert self.process.poll() is None, self.words

    def everything(self) -> list[psutil.Process]:
        return family(self.process.pid)

    def part(self, *words: str) -> psutil.Process:
        """The one process with these words in its command line."""
        return the_one(self.process.pid, *words)

    def end(self) -> None:
        end(self.process)
        shutil.rmtree(
            self.data.socket_directory, ignore_errors=True
        )  # a killed stack leaves it to the next one


def start(folder: Path) -> Up:
    output = folder / "output"
    command = typed("up", "--port", "0", "--data", str(folder / "data"))
    with output.open("wb") as file:
        process = subprocess.Popen(
            command, env=clean_environment(), stdout=file, stderr=file, start_new_session=True
        )
    return Up(process, DataDir(folder / "data"), output)


def ask(stack: Up, path: str) -> httpx.Response:
    return httpx.get(f"{stack.info().url}/api/v1/{path}", timeout=PATIENCE)


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    running = start(tmp_path_factory.mktemp("stack"))
    try:
        running.wait_until_ready()
        yield running
    finally:
        running.end()


def test_what_is_ready_knows_what_local_means(stack: Up) -> None:
    url = stack.info().url
    (device,) = httpx.get(f"{url}/api/v1/devices").json()["items"]
    assert device["online"]


def test_the_url_is_named_as_soon_as_it_answers_and_every_part_as_it_becomes_ready(stack: Up) -> None:
    lines = stack.words.splitlines()
    ready = [line.split()[0] for line in lines if line.endswith(" is ready")]
    assert set(ready) >= PARTS
    up = next(at for at, line in enumerate(lines) if f"Mallorn is up at {stack.info().url}" in line)
    assert up < lines.index("  device is ready")
    assert "everything is ready" in stack.words
    assert ask(stack, "readyz").status_code == 200


def test_the_device_of_this_machine_is_known_to_the_coordinator(stack: Up) -> None:
    def devices() -> list[object]:
        return list(ask(stack, "devices").json()["items"])

    wait_for(devices, "the device")


def test_nobody_takes_the_folder_of_a_living_part_for_that_of_a_dead_one(stack: Up) -> None:
    assert list(find_abandoned_folders(stack.data.temporary_directory)) == []


def test_control_keeps_the_loops_turning(stack: Up) -> None:
    wait_for(lambda: ask(stack, "readyz").json()["control"] == "ok", "a turn of each loop")


@pytest.mark.parametrize(
    ("words", "libraries"),
    [
        (("serve",), ()),
        (("control",), ()),
        (("worker", "importer"), ("numpy",)),
        (("worker", "tuner1"), ("numpy",)),
        (("tracker",), ("numpy", "libtvm")),
        (("device",), ("numpy", "libtvm")),
    ],
    ids=" ".join,
)
def test_no_part_loads_a_library_that_it_does_not_need(
    stack: Up, words: tuple[str, ...], libraries: tuple[str, ...]
) -> None:
    part = next(each for each in stack.everything() if {"mallorn", *words} <= set(each.cmdline()))
    maps = Path(f"/proc/{part.pid}/maps").read_text()
    heavy = ("numpy", "scipy", "pyarrow", "sklearn", "xgboost", "lightgbm", "onnx", "libtorch", "libtvm")
    assert {library for library in heavy if f"/{library}" in maps} == set(libraries)


def test_nothing_listens_beyond_loopback_and_the_broker_not_at_all(stack: Up) -> None:
    listening = {(process.pid, ip) for process in stack.everything() for ip in listens_at(process)}
    assert {ip for _, ip in listening} == {"127.0.0.1"}
    (broker,) = [process for process in stack.everything() if is_broker(process)]
    assert broker.pid not in {pid for pid, _ in listening}


def is_broker(process: psutil.Process) -> bool:
    with suppress(psutil.NoSuchProcess):
        return "valkey" in process.name()
    return False


def listens_at(process: psutil.Process) -> set[str]:
    with suppress(psutil.NoSuchProcess):
        connections = process.net_connections("inet")
        return {each.laddr.ip for each in connections if each.status == psutil.CONN_LISTEN}
    return set()


def test_a_second_up_is_told_who_holds_the_directory_and_how_to_use_it(stack: Up) -> None:
    second = mallorn("up", "--port", "0", "--data", str(stack.data.path))
    assert_refused(second, f"pid {stack.process.pid}", f"MALLORN_URL={stack.info().url}")
    assert stack.data.read_stack() is not None


@pytest.mark.parametrize("words", [("tracker",), ("worker", "tuner1"), ("serve",), ("control",)])
def test_a_killed_part_is_started_again(stack: Up, words: tuple[str, ...]) -> None:
    victim = stack.part("mallorn", *words)
    victim.kill()
    wait_for(lambda: gone(victim), "its end")

    def back() -> bool:
        with suppress(ValueError, psutil.NoSuchProcess):
            return stack.part("mallorn", *words).pid != victim.pid
        return False

    wait_for(back, "its successor")
    assert "was killed by SIGKILL; starting it again" in stack.words
    wait_for(lambda: _ready(stack), "the stack", START_SEC)


def _ready(stack: Up) -> bool:
    with suppress(httpx.TransportError):
        return ask(stack, "readyz").status_code == 200
    return False


def assert_nothing_is_left(running: Up, number: signal.Signals) -> None:
    """Send it a signal, and wait for the end of all its processes."""
    processes = running.everything()
    assert len(processes) > len(PARTS)
    running.process.send_signal(number)
    code = running.process.wait(STOP_SEC)
    wait_for(lambda: all(gone(process) for process in processes), "the end of all")
    if number is not signal.SIGKILL:
        assert code == 0, running.words
        assert running.data.read_stack() is None
        assert "stopping" in running.words


def test_after_it_was_killed_no_process_is_left(tmp_path: Path) -> None:
    running = start(tmp_path)
    try:
        running.wait_until_ready()
        assert_nothing_is_left(running, signal.SIGKILL)
    finally:
        running.end()


def test_after_all_that_befell_its_parts_it_ends_as_a_service_manager_ends_it(stack: Up) -> None:
    assert_nothing_is_left(stack, signal.SIGTERM)


def test_interrupted_while_starting_it_leaves_nothing(tmp_path: Path) -> None:
    running = start(tmp_path)
    said = "broker is ready"
    wait_for(lambda: said in running.words or running.process.poll() is not None, said, START_SEC)
    processes = running.everything()
    running.process.send_signal(signal.SIGINT)
    assert running.process.wait(STOP_SEC) == 0, running.words
    wait_for(lambda: all(gone(process) for process in processes), "the end of all")
    assert running.data.read_stack() is None
    assert "stopping" in running.words


def test_a_data_path_that_is_a_file_is_refused_with_words(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    result = mallorn("up", "--data", str(tmp_path / "file"))
    assert_refused(result, "is not a directory", "--data DIR")


def test_a_taken_port_is_refused_with_words(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        result = mallorn("up", "--port", str(port), "--data", str(tmp_path))
    assert_refused(result, f"port {port} on 127.0.0.1 is taken", "--port 0")
