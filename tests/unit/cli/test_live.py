"""The live view: what is drawn, and what is asked for to draw it."""

import io
from collections.abc import Iterator

from rich.console import Console
from rich.text import Text

from mallorn.cli.live_view import RoundsSoFar, WholeView, plot, select_slowest_tasks
from mallorn.client.job import Job
from mallorn.core.values.decision_log import RoundStatus
from mallorn.core.values.job import JobStatus, TaskStatus
from mallorn.results.best_so_far_curve import CurvePoint
from tests.fixtures.told import told_job, told_round, told_task

BLANK = "\u2800"
FALLING = [CurvePoint(16, 1.0, 1000.0), CurvePoint(32, 2.0, 100.0), CurvePoint(64, 4.0, 10.0)]


class Told(Job):
    """A job whose rounds and tasks are lists; it counts how many rounds were handed out."""

    def __init__(self, rounds: list[RoundStatus], tasks: list[TaskStatus]) -> None:
        self.status = told_job("tuning")
        self.told_rounds, self.told_tasks = rounds, tasks
        self.asked = 0

    def rounds(
        self, task: int | None = None, order: str = "newest", page_size: int = 500
    ) -> Iterator[RoundStatus]:
        for row in reversed(self.told_rounds):
            self.asked += 1
            yield row

    def tasks(self) -> list[TaskStatus]:
        return self.told_tasks


def open_round(index: int) -> RoundStatus:
    return told_round(index, 0, None, state="leased", finished_at=None)


def test_a_curve_falls_in_steps_between_its_first_and_last_latency() -> None:
    top, *middle, bottom, axis = plot(FALLING, width=54, height=3)
    assert (top[:14], bottom[:14]) == ("    1.000 ms ┤", "     10.0 us ┤")
    assert len(middle) == 1
    dots = [row[14:] for row in (top, *middle, bottom)]
    drawn = [[at for at, field in enumerate(row) if field != BLANK] for row in dots]
    assert [(fields[0], fields[-1]) for fields in drawn] == [(10, 19), (19, 39), (39, 39)]
    assert axis.split() == ["0", "64", "trials"]


def test_no_curve_is_drawn_without_two_points_or_without_room() -> None:
    assert plot(FALLING[:1], width=80) == []
    assert plot(FALLING, width=30) == []


def test_a_job_that_gained_nothing_is_a_flat_line() -> None:
    lines = plot([CurvePoint(0, 0.0, 5.0), CurvePoint(16, 1.0, 5.0)], width=54, height=2)
    assert set(lines[1][14:]) == {"⣀"}


def test_only_rounds_that_may_have_changed_are_asked_for() -> None:
    job = Told([told_round(0, 0, 9.0), told_round(1, 0, 8.0), open_round(2), told_round(3, 0, 7.0)], [])
    so_far = RoundsSoFar(job)
    assert [row.index for row in so_far.refresh()] == [0, 1, 2, 3]
    job.told_rounds[2] = told_round(2, 0, 6.0)
    job.asked = 0
    assert so_far.refresh()[2].best_us == 6.0
    assert job.asked == 3, "the newest, the one that was open, and the settled one below it"
    job.told_rounds[0] = told_round(0, 0, None)
    so_far.forget()
    assert so_far.refresh()[0].best_us is None


def test_the_heaviest_tasks_are_kept_in_their_own_order() -> None:
    tasks = [told_task(0, 1.0), told_task(1, 9.0), told_task(2, 2.0, weight=3), told_task(3, None)]
    assert [task.index for task in select_slowest_tasks(tasks, 3)] == [1, 2, 3]
    assert select_slowest_tasks(tasks, 9) == tasks


def shown(job: Told, height: int) -> str:
    class Nothing:
        def show(self, job: JobStatus) -> None: ...

        def render(self) -> Text:
            return Text("the bar")

    console = Console(file=io.StringIO(), force_terminal=True, width=100, height=height)
    view = WholeView(job, console, Nothing())
    view.show(job.status)
    console.print(view.render())
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_bar_curve_and_table_stand_below_one_another() -> None:
    rounds = [told_round(0, 0, 90.0), told_round(1, 0, 10.0, before_us=90.0)]
    text = shown(Told(rounds, [told_task(0)]), height=40)
    places = [text.index(word) for word in ("the bar", "90.0 us ┤", "10.0 us ┤", "32 trials", "fused_dense0")]
    assert places == sorted(places)


def test_a_long_table_is_cut_to_the_terminal() -> None:
    text = shown(Told([], [told_task(index, float(index + 1)) for index in range(500)]), height=24)
    assert len(text.splitlines()) <= 24
    assert "fused_dense499" in text
    assert "490 more that weigh less; all with   mallorn jobs tasks 0123456789abcdef" in text
