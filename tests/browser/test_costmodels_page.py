"""Cost models in a browser: their versions, and the way back to an earlier one."""

from collections.abc import Callable

import pytest
from sqlalchemy.orm import Session

from mallorn.db.repositories.cost_models import CostModels, CostModelVersions, NewCostModel
from tests.browser.conftest import Open
from tests.fixtures.coordinator import OwnedRows

Serve = Callable[..., str]
FAMILY = "operator:matmul"


@pytest.fixture
def versions(rows: OwnedRows) -> list[int]:
    """Ids of two versions; the second one went on from the first."""

    def add(session: Session, parent_id: int | None, trained: int) -> int:
        fields = {"metrics": {"pairwise": 0.75, "split": "by-task"}, "blob": b"model", "parent_id": parent_id}
        new = NewCostModel(FAMILY, rows.target_id, "xgboost", trained, trained, **fields)
        return CostModels(session).add(new).id

    first = rows.write(lambda session: add(session, None, 100))
    return [first, rows.write(lambda session: add(session, first, 200))]


def test_without_models_the_page_says_where_they_come_from(
    serve: Serve, open_page: Open, rows: OwnedRows
) -> None:
    page = open_page(f"{serve()}#/costmodels")
    page.get_by_text("No cost model yet").wait_for()
    assert "mallorn costmodels pretrain" in page.inner_text("main")


def test_versions_are_shown_with_rows_measures_and_parents(
    serve: Serve, open_page: Open, versions: list[int]
) -> None:
    page = open_page(f"{serve()}#/costmodels")
    table = page.get_by_role("group", name="Versions")
    table.wait_for()
    newest = table.locator("tbody tr").first.inner_text()
    assert all(words in newest for words in ("in use", "200", "75 %", "by-task", "its family up to #200"))
    assert "Pairs in order" in table.locator("thead").inner_text()


def test_an_earlier_version_is_taken_into_use_after_a_question(
    serve: Serve, open_page: Open, rows: OwnedRows, versions: list[int]
) -> None:
    page = open_page(f"{serve()}#/costmodels")
    page.get_by_role("button", name="Go back to version 1").click()
    dialog = page.get_by_role("dialog")
    assert "version 2 stays" in dialog.inner_text()
    dialog.get_by_role("button", name="Leave it").click()
    assert not rows.read(lambda session: CostModelVersions(session).get(versions[0]).active)
    page.get_by_role("button", name="Go back to version 1").click()
    page.get_by_role("dialog").get_by_role("button", name="Go back").click()
    page.get_by_role("button", name="Use version 2").wait_for()
    assert rows.read(lambda session: CostModelVersions(session).get(versions[0]).active)
