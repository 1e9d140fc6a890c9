"""Submitting a job: what is stored, sent and refused."""

import json
import re
from typing import Any

import pytest

from mallorn.core import queues
from mallorn.core.api_keys import hash_secret
from mallorn.core.host_id import host_id
from mallorn.core.targets import parse_target
from mallorn.db.repositories.devices import Devices, SeenDevice
from mallorn.db.repositories.jobs import Jobs
from mallorn.db.repositories.targets import Targets
from mallorn.db.tables import Device
from mallorn.services.coordinator.jobs.job_request_bodies import JobIn
from mallorn.services.coordinator.jobs.submit import hash_request
from tests.fixtures.coordinator import IMPORTERS, Coordinator, Start

CPU = '{"kind":"llvm","mcpu":"znver5","num-cores":2}'


def see_device(
    coordinator: Coordinator,
    name: str,
    host: str,
    target: str = CPU,
    seen_sec_ago: float = 0.0,
    info: dict[str, Any] | None = None,
) -> None:
    with coordinator.database.transaction() as session:
        target_id = Targets(session).ensure(parse_target(target)).id
        device_id = Devices(session).record_seen(
            SeenDevice(name, target_id, host, "class", 2, "0.27.0", info or {})
        )
        session.get_one(Device, device_id).last_seen -= seen_sec_ago


def test_without_trials_there_is_no_limit_of_them(coordinator: Coordinator) -> None:
    budgets = {(None, None): None, (None, 60.0): None, (50, 60.0): 50, (0, 60.0): 0}
    for (trials, minutes), budget in budgets.items():
        assert coordinator.submit(trials=trials, minutes=minutes).json()["trials"] == budget


def test_a_new_job_is_queued_and_a_worker_is_woken(coordinator: Coordinator) -> None:
    answer = coordinator.submit(seed=7, minutes=1.5, priority=3, options={"search": "random"})
    assert answer.status_code == 201
    job = answer.json()
    assert (job["state"], job["trials"], job["minutes"], job["seed"]) == ("queued", 8, 1.5, 7)
    assert (job["name"], job["priority"]) == ("mlp.onnx", 3)
    assert job["options"]["search"] == "random"
    assert job["target"] == '{"kind":"llvm","num-cores":2}'
    assert job["progress"] == {
        "step": None,
        "trials": 0,
        "open_candidates": 0,
        "failures": {},
        "unbuilt_candidates": 0,
        "tasks": 0,
        "tasks_measured": 0,
        "estimated_us": None,
    }
    assert answer.headers["Location"] == f"/api/v1/jobs/{job['id']}"
    assert coordinator.sent(IMPORTERS) == [(queues.WORK, [queues.IMPORT])]


def test_a_private_job_is_one_from_the_start(coordinator: Coordinator) -> None:
    job = coordinator.submit(options={"private": True}).json()
    assert job["options"]["private"] is True
    with coordinator.database.session() as session:
        assert Jobs(session).get(job["id"], None).private
    assert "<dt>private</dt><dd>yes</dd>" in coordinator.http.get(f"/jobs/{job['id']}/report").text
    assert coordinator.submit(options={"private": "perhaps"}).status_code == 422


@pytest.mark.parametrize(("word", "is_private"), [("on", True), ("off", False)])
def test_the_words_of_earlier_clients_are_read_as_booleans(
    coordinator: Coordinator, word: str, is_private: bool
) -> None:
    job = coordinator.submit(options={"private": word}).json()
    assert job["options"]["private"] is is_private
    with coordinator.database.session() as session:
        stored = Jobs(session).get(job["id"], None)
        assert (stored.private, stored.options["private"]) == (is_private, is_private)


@pytest.mark.parametrize(
    ("most", "asked", "granted"),
    [("write", "read", "read"), ("read", "write", "read"), ("read", "off", "off"), ("off", "read", "off")],
)
def test_a_job_does_with_the_dataset_what_it_asks_and_the_service_allows(
    start: Start, most: str, asked: str, granted: str
) -> None:
    coordinator = start(dataset=most)
    job = coordinator.submit(options={"dataset": asked}).json()
    assert job["options"]["dataset"] == granted
    with coordinator.database.session() as session:
        assert Jobs(session).get(job["id"], None).dataset == granted


def test_a_broker_that_is_down_fails_no_submit(start: Start) -> None:
    coordinator = start(redis_url="redis://127.0.0.1:1/0")
    answer = coordinator.submit()
    assert answer.status_code == 201
    assert coordinator.http.get(f"/jobs/{answer.json()['id']}").json()["state"] == "queued"


def test_a_repeated_request_finds_the_first_job(coordinator: Coordinator) -> None:
    first = coordinator.submit({"Idempotency-Key": "one"})
    coordinator.sent(IMPORTERS)
    again = coordinator.submit({"Idempotency-Key": "one"})
    assert (first.status_code, again.status_code) == (201, 200)
    assert again.json()["id"] == first.json()["id"]
    assert len(coordinator.http.get("/jobs").json()["items"]) == 1
    assert coordinator.sent(IMPORTERS) == []


def test_an_idempotency_key_belongs_to_one_request(coordinator: Coordinator) -> None:
    first = coordinator.submit({"Idempotency-Key": "one"})
    other = coordinator.submit({"Idempotency-Key": "one"}, trials=9)
    assert other.status_code == 409
    assert first.json()["id"] in other.json()["detail"]


def test_requests_without_a_key_make_a_job_each(coordinator: Coordinator) -> None:
    assert coordinator.submit().json()["id"] != coordinator.submit().json()["id"]


def test_local_is_what_a_device_of_this_host_announced(coordinator: Coordinator) -> None:
    see_device(coordinator, "there", "another-host", '{"kind":"llvm","num-cores":64}')
    see_device(coordinator, "gpu", host_id(), '{"kind":"cuda","arch":"sm_90"}')
    see_device(coordinator, "here", host_id())
    assert coordinator.submit(target="local").json()["target"] == CPU


def test_local_is_what_the_host_was_found_to_be_whatever_else_it_can_execute(
    coordinator: Coordinator,
) -> None:
    see_device(coordinator, "here", host_id(), info={"is_local": True})
    see_device(coordinator, "older", host_id(), '{"kind":"llvm","mcpu":"haswell","num-cores":1}')
    assert coordinator.submit(target="local").json()["target"] == CPU


def test_local_without_a_device_here_names_the_command(coordinator: Coordinator) -> None:
    see_device(coordinator, "there", "another-host")
    answer = coordinator.submit(target="local")
    assert answer.status_code == 409
    assert answer.json()["hint"] == "mallorn device"


def test_local_is_a_device_that_is_online_before_one_that_was(coordinator: Coordinator) -> None:
    see_device(coordinator, "silent", host_id(), seen_sec_ago=3600)
    answer = coordinator.submit(target="local")
    assert answer.status_code == 503
    said = r"`local` is the device silent, which was last seen (\d+) s ago"
    found = re.fullmatch(said, answer.json()["detail"])
    assert found is not None
    assert int(found[1]) >= 3600
    see_device(coordinator, "gpu", host_id(), '{"kind":"cuda","arch":"sm_90"}')
    assert json.loads(coordinator.submit(target="local").json()["target"])["arch"] == "sm_90"


def test_cuda_is_the_gpu_of_a_device_wherever_it_is(coordinator: Coordinator) -> None:
    see_device(coordinator, "here", host_id(), info={"is_local": True})
    see_device(coordinator, "gpu", "another-host", "nvidia/nvidia-h100")
    see_device(coordinator, "its-twin", "a-third-host", "nvidia/nvidia-h100")
    see_device(coordinator, "silent", "a-fourth-host", "nvidia/nvidia-a100", seen_sec_ago=3600)
    assert coordinator.submit(target="cuda").json()["target"] == parse_target("nvidia/nvidia-h100").text


def test_cuda_without_a_device_with_a_gpu_names_the_command(coordinator: Coordinator) -> None:
    see_device(coordinator, "here", host_id(), info={"is_local": True})
    answer = coordinator.submit(target="cuda")
    assert answer.status_code == 503
    assert "mallorn device --target cuda" in answer.json()["hint"]


def test_cuda_is_refused_where_gpus_differ(coordinator: Coordinator) -> None:
    for number, tag in enumerate(("nvidia/nvidia-h100", "nvidia/nvidia-a100")):
        see_device(coordinator, f"gpu-{number}", "another-host", tag)
    answer = coordinator.submit(target="cuda")
    assert answer.status_code == 422
    assert all(arch in answer.json()["detail"] for arch in ("sm_80", "sm_90a"))


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"trials": -1}, "trials: input should be greater than or equal to 0"),
    ({"trials": "many"}, "trials: "),
    ({"trials": 2**40}, "trials: "),
    ({"minutes": 0}, "minutes: input should be greater than 0"),
    ({"minutes": "NaN"}, "minutes: "),
    ({"seed": -1}, "seed: "),
    ({"target": "llvm"}, "num-cores"),
    ({"target": {"kind": "llvm", "num-cores": 2, "mcpus": "x"}}, "unknown target key 'mcpus'"),
    ({"target": "{"}, "not valid JSON"),
    ({"target": "nonsense"}, "unknown target kind 'nonsense'"),
    ({"target": 3}, "target"),
    ({"target": {"kind": "lvm", "num-cores": 2}}, "unknown target kind 'lvm'; known: c, cuda, llvm"),
    ({"surprise": 1}, "surprise: there is no such field"),
    ({"options": {"round_size": 0}}, "options.round_size: "),
    ({"options": {"input_shapes": {"x": [0]}}}, "options.input_shapes.x.0: "),
]
UNKNOWN_NAMES: list[tuple[dict[str, Any], str]] = [
    ({"search": "astrology"}, "known: "),
    ({"cost_model": "astrology"}, "known: "),
    ({"recipe": "astrology"}, "known: direct, plain, tuned"),
    ({"serach": "random"}, "known: build_timeout_sec"),
    ({"evaluator": {"repeats": 1}}, "known: flush_l2, min_repeat_ms, number, repeat"),
]


def test_what_cannot_be_done_is_refused_in_words(coordinator: Coordinator) -> None:
    for changes, said in REFUSED:
        answer = coordinator.submit(**changes)
        assert answer.status_code == 422, changes
        assert said in answer.json()["detail"], changes
        if said.startswith("unknown target ") and "key" not in said:
            assert "nvidia/nvidia-h100" in answer.json()["hint"]
    assert coordinator.http.get("/jobs").json()["items"] == []
    assert coordinator.sent(IMPORTERS) == []


def test_a_job_that_answers_from_what_is_known_has_no_trials(coordinator: Coordinator) -> None:
    for mode, trials in (("zero-shot", None), ("one-shot", 0)):
        answer = coordinator.submit(trials=trials, options={"mode": mode})
        assert (answer.status_code, answer.json()["trials"]) == (201, 0)


def test_what_only_measuring_brings_is_refused_with_a_mode_that_measures_nothing(
    coordinator: Coordinator,
) -> None:
    for asked, options, words in (
        ({"trials": 64}, {}, "--trials 64"),
        ({"trials": None, "minutes": 5.0}, {}, "--minutes"),
        ({"trials": 0}, {"dynamic": {"batch": [1, 8]}}, "--dynamic"),
        ({"trials": 0}, {"contention": True}, "--contention"),
        ({"trials": 0}, {"task_trials": 16}, "task_trials"),
    ):
        refused = coordinator.submit(**asked, options={"mode": "one-shot", **options})
        assert refused.status_code == 422, words
        assert (
            refused.json()["detail"]
            == f"{words} is for jobs that measure candidates, and --mode one-shot measures none"
        )
        assert "--mode search" in refused.json()["hint"]


def test_an_unknown_name_is_answered_with_the_known_ones(coordinator: Coordinator) -> None:
    for options, hint in UNKNOWN_NAMES:
        answer = coordinator.submit(options=options)
        assert answer.status_code == 422, options
        assert answer.json()["hint"].startswith(hint), options


def test_a_job_for_an_unknown_model_is_not_found(coordinator: Coordinator) -> None:
    answer = coordinator.submit(model_id="0" * 64, target="local")
    assert answer.status_code == 404
    assert answer.json()["hint"] == "mallorn models"


def test_a_job_that_no_device_measures_has_a_target_that_says_so(coordinator: Coordinator) -> None:
    see_device(coordinator, "d", host_id())
    for target in ("local", CPU):
        job = coordinator.submit(target=target, options={"measurer": "simulated"}).json()
        assert job["target"] == CPU.replace("{", '{"device":"simulated",')


def test_a_simulated_candidate_occupies_a_worker_as_long_as_the_operator_allows(start: Start) -> None:
    def status(coordinator: Coordinator, device_sec: float) -> int:
        key = "a key" if coordinator.parts.settings.api_keys else None
        model = coordinator.ask(key, "PUT", "/models", content=b"a model").json()["id"]
        options = {"measurer": "simulated", "simulated": {"device_sec": device_sec}}
        target = {"kind": "llvm", "num-cores": 2}
        body = {"model_id": model, "target": target, "trials": 1, "options": options}
        return coordinator.ask(key, "POST", "/jobs", json=body).status_code

    own, keys = start(), {"ada": hash_secret("a key")}
    assert [status(own, sec) for sec in (0.5, 60, 600)] == [201, 201, 422]
    assert [status(start(api_keys=keys), sec) for sec in (0, 0.5)] == [201, 422]
    allowing = start(api_keys=keys, simulated_device_sec=2)
    assert [status(allowing, sec) for sec in (2, 3)] == [201, 422]


def test_a_recording_that_nobody_could_read_is_refused_at_once(coordinator: Coordinator) -> None:
    for options in ({"measurer": "replay"}, {"measurer": "replay", "recording": "a.parquet"}):
        refused = coordinator.submit(options=options)
        assert refused.status_code == 422
        assert "--option recording=" in refused.json()["hint"]
    assert coordinator.http.get("/jobs").json()["items"] == []


class LaterJobIn(JobIn):
    """The body of a later version, which has a field more."""

    colour: str = "none"


def test_a_request_repeated_after_an_upgrade_is_the_same_request() -> None:
    body = {"model_id": "a" * 64, "target": "cuda", "options": {"search": "ga"}}
    assert hash_request(LaterJobIn.model_validate(body)) == hash_request(JobIn.model_validate(body))
    assert hash_request(JobIn.model_validate(body | {"seed": 1})) != hash_request(JobIn.model_validate(body))
