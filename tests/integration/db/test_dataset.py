"""What the dataset keeps once, whoever brings it and how often."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
from sqlalchemy import func, select, update

from mallorn.core.states import JobState, RoundState
from mallorn.core.targets import parse_target
from mallorn.core.values.candidate import Choice, ChoiceKind
from mallorn.db.repositories.cost_models import CostModels, NewCostModel
from mallorn.db.repositories.devices import Devices, SeenDevice
from mallorn.db.repositories.jobs import Jobs
from mallorn.db.repositories.measurements import Measurements
from mallorn.db.repositories.measuring_contexts import Contexts
from mallorn.db.repositories.rounds import Rounds
from mallorn.db.repositories.schedules import NewSchedule, Schedules
from mallorn.db.repositories.stored_files import Models
from mallorn.db.repositories.targets import Targets
from mallorn.db.repositories.trials import Trials
from mallorn.db.repositories.workers import Workers
from mallorn.db.repositories.workloads import Sketches, Workloads, tir_of
from mallorn.db.tables import Measurement, Worker
from tests.fixtures.rows import MODEL, new_sketch, new_workload
from tests.fixtures.stored import active_jobs, workload_named
from tests.integration.db.test_roll_calls import statements


def test_importers_that_race_agree_on_the_ids(rows):
    keys = [f"k{i}" for i in range(8)]

    def ensure(order):
        batch = [new_workload(key) for key in order]
        return rows.write(lambda session: Workloads(session).ensure_many(batch))

    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(ensure, [keys, keys[::-1], keys[4:] + keys[:4], keys]))
    assert all(ids == found[0] for ids in found)
    assert len(set(found[0].values())) == len(keys)


def test_programs_and_traces_come_back_as_they_went_in(rows):
    workload = rows.read(lambda session: workload_named(session, "w0"))
    choices = tuple(Choice(kind, 2, 4, 4, (1, 2), (0, 16), (0.5, 0.5), (2, 2)) for kind in ChoiceKind)
    new = new_sketch("tiled", choices)
    rows.write(lambda session: Sketches(session).ensure_many([new]))
    sketches = rows.read(lambda session: Sketches(session).by_key(["sketch", "tiled", "unknown"]))
    assert tir_of(workload) == new_workload("w0").tir
    assert list(sketches.values()) == [new_sketch().sketch, new.sketch]


def test_one_target_and_one_context_have_one_row(rows):
    target = parse_target('{"num-cores":2,"kind":"llvm"}')
    assert rows.write(lambda session: Targets(session).ensure(target).id) == rows.target_id

    def context(session, threads):
        return Contexts(session).ensure(rows.target_id, "host", "0.27.0", threads, {}).id

    assert rows.write(lambda session: context(session, 2)) == rows.context_id
    assert rows.write(lambda session: context(session, 4)) != rows.context_id


def test_every_owner_has_the_model_they_uploaded(rows):
    rows.write(lambda session: Models(session).add(MODEL, "bob", "mine", 10))
    names = [
        rows.read(lambda session, o=owner: Models(session).get(MODEL, o).name) for owner in ("ada", "bob")
    ]
    assert names == ["mlp", "mine"]
    first = rows.read(lambda session: Models(session).list(None, limit=1))
    rest = rows.read(lambda session: Models(session).list(None, first.cursor, 1))
    assert [model.owner for model in (*first.items, *rest.items)] == ["bob", "ada"]
    assert len(rows.read(lambda session: Models(session).list("bob")).items) == 1


def test_trainers_that_race_get_versions_of_their_own(rows):
    def train(seen):
        new = NewCostModel("matmul", rows.target_id, "xgboost", seen, 10, {}, b"blob")
        return rows.write(lambda session: CostModels(session).add(new).version)

    with ThreadPoolExecutor(4) as pool:
        assert sorted(pool.map(train, range(4))) == [1, 2, 3, 4]
    latest = rows.read(lambda session: CostModels(session).latest("matmul", rows.target_id, "xgboost"))
    head = rows.read(lambda session: CostModels(session).head("matmul", rows.target_id, "xgboost"))
    assert (latest.version, latest.blob, head.id, head.version) == (4, b"blob", latest.id, 4)
    assert rows.read(lambda session: CostModels(session).head("conv2d", rows.target_id, "xgboost")) is None


def test_the_bases_of_an_operator_are_its_active_versions_the_newest_first(rows):
    elsewhere = rows.write(
        lambda session: Targets(session).ensure(parse_target('{"kind":"llvm","num-cores":4}')).id
    )
    here = rows.target_id
    for family, target_id, name in (
        ("base:matmul", here, "xgboost"),
        ("base:matmul", here, "tlp"),
        ("base:matmul", here, "xgboost"),
        ("base:matmul", elsewhere, "forest"),
        ("base:conv2d", here, "forest"),
        ("operator:matmul", here, "forest"),
    ):
        new = NewCostModel(family, target_id, name, 0, 10, {}, b"blob")
        rows.write(lambda session, new=new: CostModels(session).add(new))
    found = rows.read(lambda session: CostModels(session).bases("matmul", here))
    assert [str(base.name) for base in found] == ["base:matmul/xgboost@2", "base:matmul/tlp@1"]


def test_a_version_tells_which_base_it_stands_on(rows):
    for family, metrics in (("matmul", {"base": "base:matmul/xgboost@1"}), ("conv2d", {})):
        new = NewCostModel(family, rows.target_id, "residual", 0, 10, metrics, b"blob")
        rows.write(lambda session, new=new: CostModels(session).add(new))
    heads = [
        rows.read(lambda session, family=family: CostModels(session).head(family, rows.target_id, "residual"))
        for family in ("matmul", "conv2d")
    ]
    assert [head.base for head in heads] == ["base:matmul/xgboost@1", None]


def promoted(rows, job_id, workload, latency_us, slot=0):
    """A measurement of a round of this job, promoted."""

    def act(session):
        round_id = rows.add_round(session, workload, job_id)
        hold = Rounds(session).claim(round_id, "w", 60)
        Measurements(session).add_trials(hold, [rows.ok(slot, latency_us)])
        Rounds(session).close(hold, RoundState.DONE)
        newest = session.scalars(select(func.max(Measurement.id))).one()
        new = NewSchedule(
            rows.workloads[workload], rows.target_id, rows.context_id, newest, job_id, latency_us,
            latency_us - 1, latency_us + 1, 1e-6, "[full]", (latency_us,),
        )  # fmt: skip
        return Schedules(session).promote(new).id, Schedules(session).promote(new).id

    first, again = rows.write(act)
    assert first == again
    return first


def schedules(rows, owner="ada", **wanted):
    return rows.read(lambda session: Schedules(session).page(owner, **wanted))


def test_a_target_never_gets_another_targets_schedule(rows):
    promoted(rows, rows.job_id, "w0", 5.0)
    other = rows.write(
        lambda session: Targets(session).ensure(parse_target('{"kind":"cuda","arch":"sm_90"}'))
    )
    assert schedules(rows, target=other.key).items == []
    assert rows.read(lambda session: Trials(session).best(rows.workloads["w0"], other.id)) == []


def test_the_best_schedules_are_found_by_owner_workload_and_target(rows):
    mine = promoted(rows, rows.job_id, "w0", 9.0)

    def best(owner, **wanted):
        return [item.id for item in schedules(rows, owner, **wanted).items]

    assert best("ada") == best(None) == best("ada", workload="w0", target=rows.target_key) == [mine]
    assert best("bob") == best("ada", workload="w1") == best("ada", target="other") == []


def test_what_another_owner_found_beats_nobodys_schedule_in_ones_own_list(rows):
    other = rows.write(lambda session: rows.add_job(session, "bob", ("w0", "w1")))
    theirs, mine = promoted(rows, other, "w0", 5.0), promoted(rows, rows.job_id, "w0", 9.0)
    assert [item.id for item in schedules(rows, "ada").items] == [mine]
    assert [item.id for item in schedules(rows, None).items] == [theirs]


@pytest.mark.parametrize("beaten", [False, True])
def test_pages_of_schedules_are_the_whole_list(rows, beaten):
    for what in (("w1", 7.0), ("w0", 9.0), ("w0", 4.0), ("w1", 7.0), ("w0", 4.0)):
        promoted(rows, rows.job_id, *what)
    whole = schedules(rows, beaten=beaten)
    assert (len(whole.items), whole.cursor) == (5 if beaten else 2, None)
    order = [(item.workload, item.latency_us, -item.id) for item in whole.items]
    assert order == sorted(order), "the fastest first, and of equal ones the newest"
    found, cursor = [], None
    while page := schedules(rows, beaten=beaten, limit=1, cursor=cursor):
        found += page.items
        if (cursor := page.cursor) is None:
            break
    assert found == whole.items


def test_only_the_fastest_schedule_of_a_workload_is_among_the_best(rows):
    slower, fastest, other = (
        promoted(rows, rows.job_id, *what) for what in (("w0", 9.0), ("w0", 4.0), ("w1", 7.0))
    )
    found = schedules(rows).items
    assert [(item.id, item.workload) for item in found] == [(fastest, "w0"), (other, "w1")]
    assert slower not in {item.id for item in found}


def test_a_device_that_answers_again_is_the_same_device(rows):
    seen = SeenDevice("d", rows.target_id, "h", "host", 2, "0.27.0")
    first = rows.write(lambda session: Devices(session).record_seen(seen))
    assert rows.write(lambda session: Devices(session).record_seen(seen)) == first
    [device] = rows.read(lambda session: Devices(session).list(fresh_sec=60, target_id=rows.target_id))
    assert device.id == first
    assert rows.read(lambda session: Devices(session).list(fresh_sec=-1)) == []


def test_a_worker_that_is_gone_for_a_week_is_forgotten_a_few_at_a_time(rows):
    for name in ("a", "b", "c", "here"):
        rows.write(lambda session, name=name: Workers(session).record_seen(name, "h", {}))
    gone = update(Worker).where(Worker.id != "here").values(last_seen=Worker.last_seen - 8 * 86400)
    rows.write(lambda session: session.execute(gone))
    forget = lambda: rows.write(lambda session: Workers(session).delete_unseen(7, 2))  # noqa: E731
    assert (forget(), forget(), forget()) == (2, 1, 0)
    assert [worker.id for worker in rows.read(lambda session: Workers(session).list())] == ["here"]


def test_a_worker_keeps_its_start_and_refreshes_the_rest(rows):
    rows.write(lambda session: Workers(session).record_seen("w", "h", {"pid": 1}))
    [first] = rows.read(lambda session: Workers(session).list())
    rows.write(lambda session: Workers(session).record_seen("w", "h", {"pid": 1}, "round 2"))
    [later] = rows.read(lambda session: Workers(session).list(fresh_sec=60))
    assert later.started_at == first.started_at
    assert later.last_seen >= first.last_seen
    assert later.busy_with == "round 2"


def test_a_job_that_ended_is_no_longer_active(rows):
    assert [job.id for job in rows.read(active_jobs)] == [rows.job_id]
    rows.write(lambda session: Jobs(session).move_to_state(rows.job_id, [JobState.TUNING], JobState.DONE))
    assert rows.read(active_jobs) == []


def imported_and_extracted(key="w9"):
    """What a stranger says of a workload, and what our importer found."""
    ours = new_workload(key)
    theirs = replace(ours, op="pool", flops=1e30, tir="{theirs}", args={"ranges": {"0": [0, 9]}})
    return theirs, ours


@pytest.mark.parametrize("order", [(0, 1), (1, 0)], ids=["theirs first", "ours first"])
def test_what_was_extracted_here_wins_over_what_was_imported(rows, order):
    both = imported_and_extracted()
    for number in order:
        code = "c1" if number else None
        rows.write(lambda session, n=number, c=code: Workloads(session).ensure_many([both[n]], code=c))
    stored = rows.read(lambda session: workload_named(session, "w9"))
    ours = both[1]
    assert (stored.op, stored.flops, tir_of(stored), stored.args) == (
        ours.op,
        ours.flops,
        ours.tir,
        ours.args,
    )
    assert stored.code == "c1"


@pytest.mark.parametrize(
    ("again", "wins"), [(("c1", "0.27.0"), False), (("c2", "0.27.0"), True), (("c1", "0.28.0"), True)]
)
def test_other_code_and_another_tvm_write_what_they_extract_anew(rows, again, wins):
    ours = new_workload("w9")
    code, tvm_version = again
    later = replace(ours, flops=2e6, args={"ranges": {"0": [0, 5]}}, tvm_version=tvm_version)
    rows.write(lambda session: Workloads(session).ensure_many([ours], code="c1"))
    rows.write(lambda session: Workloads(session).ensure_many([later], code=code))
    stored = rows.read(lambda session: workload_named(session, "w9"))
    expected = later if wins else ours
    assert (stored.flops, stored.args) == (expected.flops, expected.args)


def test_the_names_in_a_private_program_do_not_become_everybodys(rows):
    theirs, ours = imported_and_extracted()
    rows.write(lambda session: Workloads(session).ensure_many([theirs]))
    rows.write(lambda session: Workloads(session).ensure_many([ours], private=True, code="c1"))
    assert tir_of(rows.read(lambda session: workload_named(session, "w9"))) == theirs.tir


@pytest.mark.parametrize("order", [(0, 1), (1, 0)], ids=["theirs first", "ours first"])
def test_a_sketch_that_a_round_proposes_wins_over_an_imported_one(rows, order):
    choices = (Choice(ChoiceKind.TILE, 2, 64),)
    theirs, ours = new_sketch("s9"), new_sketch("s9", choices)
    ours = replace(ours, sketch=replace(ours.sketch, ordinal=3))
    for number in order:
        new, imported = ((theirs, True), (ours, False))[number]
        rows.write(lambda session, n=new, i=imported: Sketches(session).ensure_many([n], imported=i))
    stored = rows.read(lambda session: Sketches(session).by_key(["s9"])["s9"])
    assert (stored.ordinal, stored.choices) == (3, choices)


def test_a_sketch_that_is_stored_is_only_read(rows):
    """Rounds of unrelated jobs have the same sketches, and an upsert would lock their rows."""
    new = new_sketch("s9")
    ids = rows.write(lambda session: Sketches(session).ensure_many([new]))
    with statements(rows.database) as sent:
        for imported in (False, True):
            again = rows.write(lambda session, i=imported: Sketches(session).ensure_many([new], imported=i))
            assert again == ids
    assert {statement.split()[0] for statement in sent} == {"SELECT"}


def test_a_sketch_keeps_the_place_that_the_newest_code_gives_it(rows):
    for ordinal, tvm_version in ((3, "0.27.0"), (5, "0.27.0"), (4, "0.28.0")):
        new = new_sketch("s9")
        new = replace(new, sketch=replace(new.sketch, ordinal=ordinal), tvm_version=tvm_version)
        rows.write(lambda session, n=new: Sketches(session).ensure_many([n]))
        stored = rows.read(lambda session: Sketches(session).by_key(["s9"])["s9"])
        assert stored.ordinal == ordinal
    imported = replace(new, sketch=replace(new.sketch, ordinal=9))
    rows.write(lambda session: Sketches(session).ensure_many([imported], imported=True))
    assert rows.read(lambda session: Sketches(session).by_key(["s9"])["s9"]).ordinal == 4
