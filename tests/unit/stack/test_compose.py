"""The compose file, read without an engine: every command parses, nothing is open to strangers."""

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.main import get_command

from mallorn.cli.main import app
from mallorn.core.settings import Settings
from mallorn.workers.device.key_agent import DEVICE_VARIABLES

ROOT = Path(__file__).parents[3]
COMPOSE: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
SERVICES: dict[str, Any] = COMPOSE["services"]
DOCKERFILE = (ROOT / "deploy" / "Dockerfile").read_text()
ALL = {f"MALLORN_{name.upper()}" for name in Settings.model_fields}
OF_COMMANDS = {"MALLORN_API_KEY", "MALLORN_HOST", "MALLORN_PORT"}
OF_HOSTS = {"MALLORN_DATA_DIR", "MALLORN_HOST_FOLDER"}
OF_FLEET = {"MALLORN_RPC_KEY"}
OF_CALLERS = {name for name in ALL if name.startswith(("MALLORN_OIDC_", "MALLORN_API_KEYS", "MALLORN_URL"))}
S3 = {"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_DEFAULT_REGION", "FSSPEC_S3_ENDPOINT_URL"}
OURS = sorted(name for name, service in SERVICES.items() if "build" in service)


@pytest.mark.parametrize("name", OURS)
def test_every_command_line_is_one_the_cli_parses(name: str) -> None:
    word, *options = SERVICES[name]["command"]
    command = get_command(app).get_command(None, word)  # type: ignore[attr-defined]
    assert command is not None
    command.make_context(word, list(options))


def test_the_parts_are_those_of_the_embedded_stack() -> None:
    assert set(SERVICES) >= {
        *("postgres", "redis", "migrate", "coordinator", "control", "worker", "tracker", "device")
    }


@pytest.mark.parametrize("name", ["worker", "device"])
def test_what_handles_strangers_programs_requires_its_walls_unless_the_operator_says_otherwise(
    name: str,
) -> None:
    assert SERVICES[name]["environment"]["MALLORN_SANDBOX"] == "${MALLORN_SANDBOX:-require}"


def test_only_the_coordinator_is_published_and_only_on_loopback() -> None:
    published = {name: service["ports"] for name, service in SERVICES.items() if "ports" in service}
    assert published == {"coordinator": ["127.0.0.1:8000:8000"]}


def test_only_the_coordinator_is_on_a_network_with_a_way_out() -> None:
    internal = {name for name, network in COMPOSE["networks"].items() if network.get("internal")}
    assert internal == {"inside", "fleet"}
    reached = {name for name, service in SERVICES.items() if not set(service["networks"]) <= internal}
    assert reached == {"coordinator"}


def test_tracker_and_device_which_run_strangers_code_reach_neither_database_nor_broker() -> None:
    for name in ("tracker", "device"):
        assert SERVICES[name]["networks"] == ["fleet"]
    for name in ("postgres", "redis"):
        assert SERVICES[name]["networks"] == ["inside"]
    assert SERVICES["worker"]["networks"] == ["inside", "fleet"]


def test_only_the_fleet_has_the_key_with_which_devices_run_code() -> None:
    holders = {name for name in OURS if "MALLORN_RPC_KEY" in SERVICES[name]["environment"]}
    assert holders == {"worker", "tracker", "device"}


def test_every_service_runs_without_root_and_without_new_privileges() -> None:
    stages = re.split(r"^FROM ", DOCKERFILE, flags=re.MULTILINE)[2:]
    assert all("\nUSER mallorn\n" in stage for stage in stages)
    for name, service in SERVICES.items():
        assert "no-new-privileges:true" in service["security_opt"], name
        assert name in OURS or service["user"] != "root"


def test_images_are_pinned_to_a_version() -> None:
    images = [service["image"] for service in SERVICES.values()]
    images += re.findall(r"^FROM (\S+:\S+)", DOCKERFILE, flags=re.MULTILINE)
    assert all(re.search(r":\d+\.\d+", image) for image in images), images


def test_every_service_that_stays_has_a_health_check() -> None:
    assert {name for name, service in SERVICES.items() if "healthcheck" not in service} == {"migrate"}


def test_every_variable_is_a_setting() -> None:
    given = {key for name in OURS for key in SERVICES[name].get("environment", {})}
    assert given <= {*ALL, "MALLORN_READY_FILE", "TMPDIR", "FORWARDED_ALLOW_IPS", *S3}


@pytest.mark.parametrize(
    ("name", "read"),
    [
        ("coordinator", ALL - OF_COMMANDS - OF_HOSTS - OF_FLEET),
        ("control", ALL - OF_COMMANDS - OF_HOSTS - OF_CALLERS - OF_FLEET),
        ("worker", ALL - OF_COMMANDS - OF_CALLERS),
        ("device", {*DEVICE_VARIABLES, "MALLORN_RPC_KEY"}),
    ],
)
def test_every_setting_reaches_the_containers_that_read_it(name: str, read: set[str]) -> None:
    """Those of the command line and of the client do not count; a name without a value is passed on."""
    assert read <= SERVICES[name]["environment"].keys()


def test_a_setting_for_which_this_file_has_no_value_is_the_operators() -> None:
    given = SERVICES["worker"]["environment"]
    assert given["MALLORN_CHILD_MEMORY_BYTES"] is None
    assert given["MALLORN_ARTIFACTS"].startswith("${MALLORN_ARTIFACTS:-")


@pytest.mark.parametrize(
    ("stage", "roles"),
    [("service", ["server", "fleet"]), ("worker", ["worker", "fleet", "cross"]), ("device", ["device"])],
)
def test_an_image_installs_what_its_role_needs_by_version_and_hash(stage: str, roles: list[str]) -> None:
    (file,) = re.findall(rf" AS {stage}\n(?:(?!FROM ).*\n)*?RUN pip install -r (\S+) ", DOCKERFILE)
    command = [sys.executable, ROOT / "requirements" / "role.py", *roles]
    needed = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    pins = (ROOT / file).read_text()
    pinned = dict(re.findall(r"^([a-z0-9._-]+)==(\S+) (?!; sys_platform == 'win32')", pins, re.M))
    assert {re.split(r"[\[<>=]", line)[0] for line in needed} <= pinned.keys()
    locked = dict(re.findall(r"^([a-z0-9._-]+)==(\S+) ", (ROOT / "requirements/lock.txt").read_text(), re.M))
    zig = re.findall(r"^ZIGLANG := '?(\S+?)==([^'\s]+)", (ROOT / "Makefile").read_text(), re.M)
    assert pinned.items() <= {*locked.items(), *zig}, "tests run with the same versions"
    assert pins.count("--hash=sha256:") >= len(pinned)


@pytest.mark.parametrize("name", ["worker", "device"])
def test_models_candidates_and_kept_libraries_lie_in_volumes_of_one_container(name: str) -> None:
    given = SERVICES[name]["environment"]
    mounts = dict(reversed(volume.split(":")) for volume in SERVICES[name]["volumes"])
    written = [given[key] for key in ("TMPDIR", "MALLORN_DATA_DIR") if key in given]
    for place in written:
        users = [
            other
            for other in OURS
            for volume in SERVICES[other].get("volumes", [])
            if mounts[place] in volume
        ]
        assert users == [name]


def test_the_worker_and_the_device_of_a_host_share_their_locks() -> None:
    folders = {SERVICES[name]["environment"]["MALLORN_HOST_FOLDER"] for name in ("worker", "device")}
    (folder,) = folders
    assert all(f"locks:{folder}" in SERVICES[name]["volumes"] for name in ("worker", "device"))


def test_the_image_has_the_place_of_every_volume_with_its_owner() -> None:
    (made,) = re.findall(r"install -d -o mallorn -g mallorn (.*)", DOCKERFILE)
    places = {volume.partition(":")[2] for name in OURS for volume in SERVICES[name].get("volumes", [])}
    assert places <= {f"/var/lib/{folder}" for folder in made.split()}


def test_every_needed_secret_is_explained_in_the_example() -> None:
    text = (ROOT / "docker-compose.yml").read_text()
    example = (ROOT / "deploy" / "env.example").read_text()
    assert all(f"{name}=" in example for name in re.findall(r"\$\{(\w+):\?", text))


def test_every_service_has_limits_and_the_device_none_of_processors() -> None:
    limits = {name: service["deploy"]["resources"]["limits"] for name, service in SERVICES.items()}
    assert all({"memory", "pids"} <= limit.keys() for limit in limits.values())
    assert [name for name, limit in limits.items() if "cpus" not in limit] == ["device"]


def test_every_service_starts_again_and_keeps_logs_of_bounded_size() -> None:
    for name, service in SERVICES.items():
        assert service["restart"] in ("unless-stopped", "on-failure"), name
        assert {"max-size", "max-file"} <= service["logging"]["options"].keys(), name


def test_every_part_of_ours_logs_as_the_setting_says() -> None:
    said = {name: SERVICES[name]["environment"]["MALLORN_LOG_FORMAT"] for name in OURS}
    assert set(said.values()) == {"${MALLORN_LOG_FORMAT:-json}"}, said
