"""A picture of every page, in light, in dark and on a phone, of a service that has something to show."""

import re
import shutil
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import pytest

from mallorn.core.settings import Settings
from mallorn.db.repositories.jobs import Jobs
from mallorn.db.session import Database
from mallorn.services.coordinator.app import create_app
from tests.browser.conftest import Open
from tests.browser.furnished import Furnished, furnish
from tests.browser.looks import LOOKS, SEARCH, every_look, faults, keep_picture, narrow, settle
from tests.fixtures.coordinator import OwnedRows, serving
from tests.fixtures.rows import new_job

Act = Callable[[Any], None]


def nothing(_page: Any) -> None:
    """The page is to be seen as it opens."""


def open_submit(page: Any) -> None:
    page.get_by_role("button", name="Tune a model").first.click()
    page.get_by_role("dialog").get_by_text("Options", exact=True).click()
    page.get_by_label(SEARCH).wait_for()


def select_jobs(page: Any) -> None:
    page.get_by_label("Select resnet18").check()
    page.get_by_label("Select mlp").first.check()


def open_cancel(page: Any) -> None:
    page.get_by_role("button", name="Cancel …").click()
    page.get_by_role("dialog").wait_for()


def open_failures(page: Any) -> None:
    page.get_by_text("did not build").click()
    page.locator(".texts pre").first.wait_for()


def show_trace(page: Any) -> None:
    page.get_by_label("trace").check()
    page.get_by_role("group", name="Trace of schedule").wait_for()


def open_table(page: Any) -> None:
    page.get_by_text("All of it as a table").click()
    page.get_by_role("group", name="Rounds").wait_for()


@dataclass(frozen=True)
class Place:
    """An address, as a template over the jobs of the furnished service, and what is done there."""

    address: str
    headline: str
    act: Act = nothing


FURNISHED: Final = {
    "jobs": Place("#/jobs", "Jobs"),
    "jobs-selected": Place("#/jobs", "Jobs", select_jobs),
    "submit": Place("#/jobs", "Jobs", open_submit),
    "job-tuning": Place("#/jobs/{tuning}", "resnet18"),
    "job-done": Place("#/jobs/{done}", "bert-small"),
    "job-done-by-seconds": Place("#/jobs/{done}?x=seconds", "bert-small"),
    "job-paused": Place("#/jobs/{paused}", "mlp", open_failures),
    "job-failed": Place("#/jobs/{failed}", "detector"),
    "job-first": Place("#/jobs/{first}", "bert-small"),
    "job-short": Place("#/jobs/{short}", "encoder-1"),
    "job-stuck": Place("#/jobs/{stuck}", "mlp-wide"),
    "job-queued": Place("#/jobs/{queued}", "vit-tiny"),
    "job-cancel": Place("#/jobs/{tuning}", "resnet18", open_cancel),
    "task": Place("#/jobs/{done}/tasks/7", "fused_matmul3"),
    "task-trace": Place("#/jobs/{done}/tasks/7", "fused_matmul3", show_trace),
    "task-tuning": Place("#/jobs/{tuning}/tasks/8", "fused_conv2d1"),
    "compare": Place("#/compare?jobs={done},{other}", "Compare"),
    "compare-models": Place("#/compare?jobs={done},{tuning},{paused}&x=seconds", "Compare"),
    "fleet": Place("#/fleet", "Fleet"),
    "fleet-table": Place("#/fleet", "Fleet", open_table),
    "fleet-day": Place("#/fleet?window=day", "Fleet"),
    "dataset": Place("#/dataset", "Dataset"),
    "costmodels": Place("#/costmodels", "Cost models"),
}
EMPTY: Final = {
    "jobs": ("#/jobs", "No jobs yet"),
    "compare": ("#/compare", "Choose two jobs or more"),
    "fleet": ("#/fleet", "No device yet"),
    "dataset": ("#/dataset", "Nothing measured yet"),
    "costmodels": ("#/costmodels", "No cost model yet"),
    "keys": ("#/keys", "No keys yet"),
    "nowhere": ("#/nowhere", "There is no such page"),
    "no-job": ("#/jobs/0123456789abcdef", "There is no such job"),
}


@dataclass(frozen=True)
class Service:
    """A coordinator over furnished rows."""

    url: str
    jobs: Furnished


@pytest.fixture(scope="module")
def service(sqlite_template: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    folder = tmp_path_factory.mktemp("furnished")
    shutil.copy(sqlite_template, folder / "mallorn.db")
    database = Database(f"sqlite:///{folder}/mallorn.db")
    jobs = furnish(database, folder / "artifacts", time.time())
    database.dispose()
    with serving(create_app(Settings(data_dir=folder, redis_url="memory://"))) as url:
        yield Service(f"{url}/", jobs)


@every_look
@pytest.mark.parametrize("name", FURNISHED)
def test_a_furnished_page_shows_all_it_has_and_nothing_odd(
    service: Service, open_page: Open, name: str, look: str
) -> None:
    place = FURNISHED[name]
    page = open_page(service.url + place.address.format(**asdict(service.jobs)), **LOOKS[look])
    page.get_by_role("heading", level=1).filter(has_text=place.headline).wait_for()
    settle(page)
    place.act(page)
    settle(page)
    keep_picture(page, f"{name}-{look}")
    assert faults(page) == []
    narrow(page)
    assert faults(page) == []


@every_look
@pytest.mark.parametrize("name", EMPTY)
def test_an_empty_page_says_what_will_be_there(
    empty_service: str, open_page: Open, name: str, look: str
) -> None:
    address, words = EMPTY[name]
    page = open_page(empty_service + address, **LOOKS[look])
    page.get_by_text(words).first.wait_for()
    settle(page)
    keep_picture(page, f"empty-{name}-{look}")
    assert page.locator("h1").is_visible()
    assert faults(page) == []


@every_look
@pytest.mark.parametrize("count", [1, 20])
def test_the_list_reads_well_with_one_job_and_with_many(
    serve: Callable[..., str], open_page: Open, quiet_database: Database, count: int, look: str
) -> None:
    rows = OwnedRows(quiet_database)
    for seed in range(1, count):
        new = new_job("local", name=f"encoder-{seed}", target_id=rows.target_id, seed=seed)
        rows.write(lambda session, new=new: Jobs(session).create(new))
    page = open_page(serve(), **LOOKS[look])
    page.get_by_role("link", name="mlp").wait_for()
    settle(page)
    keep_picture(page, f"jobs-{count}-{look}")
    assert page.get_by_label(re.compile("^Select (mlp|encoder)")).count() == count
    assert faults(page) == []


def test_a_fault_is_found(service: Service, open_page: Open) -> None:
    page = open_page(service.url)
    page.get_by_role("link", name="resnet18").first.wait_for()
    page.evaluate("document.querySelector('h1').textContent = 'took NaN s, undefined'")
    page.evaluate("document.body.style.width = '3000px'")
    assert [text for text in faults(page) if "pixels wider" not in text] == ["says 'NaN'", "says 'undefined'"]
    assert any("pixels wider" in text for text in faults(page))
