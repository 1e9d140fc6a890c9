"""Lists of jobs by name, label, model, state and time: the right ones, and each from an index."""

import pytest
from sqlalchemy import text, update

from benchmarks.filled.plans import listening
from mallorn.core.errors import InvalidRequest
from mallorn.core.labels import MOST_LABELS
from mallorn.core.states import JobState
from mallorn.db.repositories.archive_and_delete_jobs import Removals
from mallorn.db.repositories.jobs import JobFilter, JobLabels, Jobs
from mallorn.db.session import Database
from mallorn.db.tables import Job
from tests.fixtures.rows import Rows, new_job
from tests.integration.db.test_plans import plans_of


@pytest.fixture
def rows(database_url):
    database = Database(database_url)
    yield Rows(database)
    database.dispose()


@pytest.fixture
def named(rows):
    """By name: ids of jobs that differ in everything by which a list is filtered."""

    def fill(session):
        found = {}
        for at, (name, owner, private, labels) in enumerate(
            [
                ("ResNet50", "ada", False, {"team": "vision", "nightly": ""}),
                ("resnet18", "ada", True, {"team": "vision"}),
                ("bert_50%", "bob", False, {"team": "speech"}),
                ("bert", "bob", True, {"team": "vision"}),
            ]
        ):
            options = {**new_job().options, "private": private}
            new = new_job(owner, name=name, target_id=rows.target_id, model_id=f"{at}" * 64, options=options)
            job, _ = Jobs(session).create(new)
            JobLabels(session).change(job.id, labels)
            session.execute(update(Job).where(Job.id == job.id).values(created_at=1000.0 + at))
            found[name] = job.id
        Jobs(session).cancel(found["resnet18"], "ada")
        return found

    return rows.write(fill)


def listed(rows, named, owner, **fields):
    page = rows.read(lambda session: Jobs(session).list(owner, JobFilter(**fields), None, 10))
    names = {job_id: name for name, job_id in named.items()}
    return [names[job.id] for job in page.items if job.id in names]


def test_each_filter_lists_the_jobs_that_have_it(rows, named):
    for fields, expected in (
        ({"name": "RESNET"}, ["resnet18", "ResNet50"]),
        ({"name": "50%"}, ["bert_50%"]),
        ({"name": named["bert"][:10]}, ["bert"]),
        ({"labels": [("team", "vision")]}, ["bert", "resnet18", "ResNet50"]),
        ({"labels": [("team", None)]}, ["bert", "bert_50%", "resnet18", "ResNet50"]),
        ({"labels": [("team", "vision"), ("nightly", None)]}, ["ResNet50"]),
        ({"labels": [("team", "")]}, []),
        ({"model": "2222"}, ["bert_50%"]),
        ({"states": [JobState.CANCELLED]}, ["resnet18"]),
        ({"states": [JobState.CANCELLED, JobState.QUEUED], "name": "t18"}, ["resnet18"]),
        ({"created_after": 1001.0, "created_before": 1003.0}, ["bert_50%", "resnet18"]),
    ):
        assert listed(rows, named, None, **fields) == expected, fields
    assert listed(rows, named, "ada", labels=[("team", "vision")]) == ["resnet18", "ResNet50"]


def test_names_labels_and_models_of_anothers_private_job_match_nothing(rows, named):
    for fields in ({"name": "resnet18"}, {"labels": [("team", "vision")]}, {"model": "1" * 64}):
        assert "resnet18" in listed(rows, named, None, viewer="ada", **fields)
        assert "resnet18" not in listed(rows, named, None, viewer="root", **fields)
    assert "resnet18" in listed(rows, named, None, viewer="root", states=[JobState.CANCELLED])


def test_labels_change_one_by_one_and_have_a_limit(rows):
    def change(**changes):
        rows.write(lambda session: JobLabels(session).change(rows.job_id, changes))
        return rows.read(lambda session: JobLabels(session).by_job([rows.job_id]))[rows.job_id]

    assert change(team="vision", nightly="") == {"nightly": "", "team": "vision"}
    assert change(team="speech", nightly=None, gone=None) == {"team": "speech"}
    most = {f"k{at}": "" for at in range(MOST_LABELS)}
    with pytest.raises(InvalidRequest, match=f"{MOST_LABELS} labels, and this would make {MOST_LABELS + 1}"):
        change(**most)
    assert change() == {"team": "speech"}
    assert len(change(team=None, **most)) == MOST_LABELS


def test_a_deleted_job_keeps_no_labels(rows, named):
    rows.write(lambda session: Removals(session).delete(named["resnet18"], "ada"))
    assert rows.read(lambda session: JobLabels(session).by_job([named["resnet18"]])) == {
        named["resnet18"]: {}
    }


LISTS = {
    "an owner's": ("ada", JobFilter(), "ix_jobs_owner_created"),
    "all": (None, JobFilter(), "ix_jobs_created"),
    "since": (None, JobFilter(created_after=5.0), "ix_jobs_created"),
    "an owner's by name": ("ada", JobFilter(name="net"), "ix_jobs_owner_created"),
    "by label": (None, JobFilter(labels=[("team", "vision")]), "ix_job_labels_key"),
    "by model": (None, JobFilter(model="a" * 64), "ix_jobs_model"),
}
FILL = """
with recursive n(at) as (select 0 union all select at + 1 from n where at < 4000)
insert into jobs
    (id, owner, name, model_id, target_id, seed, priority, options, state, event_count, created_at)
select 'j' || at, 'o' || (at % 50), 'net', 'm' || (at % 900), :target, 0, 0, '{}', 'done', 0, at from n
"""
LABELS = "insert into job_labels (job_id, key, value) select id, 'team', owner from jobs"


@pytest.mark.parametrize("name", LISTS)
def test_a_list_comes_from_an_index(rows, name):
    owner, job_filter, index = LISTS[name]
    rows.write(lambda session: session.execute(text(FILL), {"target": rows.target_id}))
    rows.write(lambda session: session.execute(text(LABELS)))
    if rows.database.url.startswith("postgres"):
        with rows.database.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            connection.execute(text("vacuum analyze jobs"))
            connection.execute(text("vacuum analyze job_labels"))
        plans = postgres_plans(rows, lambda session: Jobs(session).list(owner, job_filter))
    else:
        rows.write(lambda session: session.execute(text("analyze")))
        plans = plans_of(rows, lambda session: Jobs(session).list(owner, job_filter))
    assert any(index in step for step in plans), plans
    assert not [
        step
        for step in plans
        if step.strip(" ->").startswith(("Seq Scan", "SCAN jobs", "SCAN job_labels")) and "INDEX" not in step
    ]


def postgres_plans(rows, read):
    with rows.database.session() as session, listening(rows.database.engine) as heard:
        read(session)
        said = [(one.sql, one.parameters) for one in heard if one.sql.startswith("SELECT")]
        found = [session.connection().exec_driver_sql(f"explain {sql}", told) for sql, told in said]
        return [row[0] for result in found for row in result]
