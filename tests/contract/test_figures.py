"""Figures of pages have their raw data and the command that made them, and say what these say."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from benchmarks.gpu_arena import NOT_MEASURED, with_column
from tests.fixtures.command_line import ROOT

RESULTS: Final = ROOT / "docs" / "results"
LEARN_NOTHING: Final = {"draft", "random", "scrambled"}
# Their figures are printed by what a test types, or belong to what they are kept of.
OTHERS: Final = {"adr", "reference", "results", "first-hours"}
PAGES: Final = [
    page
    for page in (ROOT / "README.md", ROOT / "benchmarks/README.md", *sorted((ROOT / "docs").rglob("*.md")))
    if not OTHERS & set(page.relative_to(ROOT).parts)
]
TABLE: Final = re.compile(r"(?:^ *\|.*\n)+", re.MULTILINE)
# A cell that begins with a measured number: 1.23, 45 ms (0.9), 12 %.
MEASURED: Final = re.compile(r"\| *[*(]*(?:[\d,]*\.\d+(?!\.\d)|[\d,.]+ (?:ms|us|s|GB|GFLOP/s|%))")
COMMAND: Final = re.compile(r"python -m (benchmarks(?:\.\w+)*)")
#: What follows the name of a benchmark that git has, and the tree no more.
EARLIER: Final = re.compile(
    r"`?python -m benchmarks\.[^`\n]*?`? *[(#] ?`?benchmarks/\w+\.py`? at commit [0-9a-f]{8}"
)
RAW: Final = re.compile(r"\]\((?:\.\./)*(?:docs/)?(?:results/|benchmarks/data/)")
TEST: Final = re.compile(r"`(?:pytest )?tests/|python -m tests\.")
#: How often a page may say that figures were measured without raw ones being kept: it may become less.
NOT_KEPT: Final = {"models.md": 1, "performance.md": 1}
LOST: Final = re.compile(
    r"[Rr]aw figures (?:of it )?(?:are|were) (?:not )?kept|no raw figures of it are kept"
)


def tables(page: str) -> Iterator[tuple[str, str]]:
    """Tables with measured numbers, each with the text of its section."""
    for section in re.split(r"^(?=##+ )", page, flags=re.MULTILINE):
        for table in TABLE.findall(section):
            if len(MEASURED.findall(table.replace(" | ", " || "))) > 2:
                yield table, section


def without_source(page: str) -> list[str]:
    """The first lines of tables that name no raw file, no benchmark and no test."""
    marks = (RAW, COMMAND, TEST, LOST)
    return [
        table.splitlines()[0]
        for table, section in tables(page)
        if not any(mark.search(section) for mark in marks)
    ]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_a_table_of_figures_has_its_raw_data_or_the_command_that_made_it(page: Path) -> None:
    assert without_source(page.read_text()) == []


BARE = """## Speed

| model | ours | theirs |
|---|---|---|
| mlp | 1.2 ms (0.9) | 1.4 ms |
| vit | 10 ms | 11 ms |
"""


@pytest.mark.parametrize("source", ["[raw](results/a.json)", "`python -m benchmarks.latency`"])
def test_a_table_without_a_source_is_found(source: str) -> None:
    assert without_source(BARE) == ["| model | ours | theirs |"]
    assert without_source(f"{BARE}\n{source}\n") == []
    assert without_source(f"{BARE}\n## Another section\n\n{source}\n") != []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_a_benchmark_that_a_page_names_exists(page: Path) -> None:
    named = {name.replace(".", "/") for name in COMMAND.findall(EARLIER.sub("", page.read_text()))}
    assert [name for name in named if not (ROOT / f"{name}.py").exists() and not (ROOT / name).is_dir()] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_figures_without_raw_data_become_fewer(page: Path) -> None:
    assert len(LOST.findall(page.read_text())) <= NOT_KEPT.get(page.name, 0)


def test_tables_of_figures_are_found() -> None:
    assert sum(1 for page in PAGES for _ in tables(page.read_text())) > 25


ARMS: Final = ("zero", "chance", "ours")
COLUMNS: Final = dict(zip(ARMS, ("no trials", "random trials", "Mallorn's search"), strict=True))


def of_readme() -> Iterator[tuple[str, int, dict[str, str]]]:
    """Rows of README's table of engines: the network, the threads, and cells by column, without marks."""
    (table,) = (
        text for text in TABLE.findall((ROOT / "README.md").read_text()) if "| onnxruntime, ms |" in text
    )
    header, _, *lines = (
        [cell.strip() for cell in re.sub(r"\]\([^)]*\)|[*\[]", "", line.strip()[1:-1]).split("|")]
        for line in table.splitlines()
    )
    for line in lines:
        row = dict(zip(header, line, strict=True))
        yield row["network"], int(row["threads"]), row


def of_raw(name: str, threads: int) -> tuple[dict[str, float], dict[str, float]]:
    """Medians in microseconds by engine, and each arm's over its onnxruntime's, from the kept files."""
    path = RESULTS / f"latency_held_out_{name}.json"
    if path.exists():
        (cell,) = (cell for cell in json.loads(path.read_text())["cells"] if cell["threads"] == threads)
        right = {engine: time["median"] for engine, time in cell["latency_us"].items() if time}
        right = {engine: us for engine, us in right.items() if cell["errors"].get(engine, 0.0) < 1e-3}
        return right, {engine: us / right["onnxruntime"] for engine, us in right.items()}
    us: dict[str, float] = {}
    ratios: dict[str, float] = {}
    for arm in ARMS:
        (file,) = (RESULTS / "ablation").glob(f"{name}-*-{threads}-{arm}-0.json")
        times = json.loads(file.read_text())["latency_us"]
        us[arm] = times[arm]["median"]
        ratios[arm] = us[arm] / times["onnxruntime"]["median"]
    return us, ratios


@pytest.mark.parametrize(("name", "threads", "row"), list(of_readme()), ids=lambda value: str(value)[:16])
def test_the_headline_of_the_readme_is_made_of_raw_figures(
    name: str, threads: int, row: dict[str, str]
) -> None:
    us, ratios = of_raw(name, threads)
    for arm, column in COLUMNS.items():
        assert bool(row[column]) == (arm in us), f"{arm} of {name}"
        if row[column]:
            assert_rounded(ratios[arm], row[column])
    rivals_ms = sorted(us[arm] / ratios[arm] / 1e3 for arm in ARMS if arm in us)
    shown_ms = row["onnxruntime, ms"].split(" to ")
    for value, text in zip((rivals_ms[0], rivals_ms[-1]), (shown_ms[0], shown_ms[-1]), strict=True):
        assert_rounded(value, text)
    if row["fastest other engine"]:
        others = {name: us for name, us in us.items() if name not in (*ARMS, "onnxruntime")}
        fastest = min(others, key=others.__getitem__)
        assert fastest == f"{row['fastest other engine'].lower()}_cpu"
        assert_rounded(ratios[fastest], row["its ratio"])


def assert_rounded(value: float, text: str) -> None:
    """The text is the value to as many places as it has."""
    assert abs(value - float(text)) <= 0.5001 * 10 ** -len(text.partition(".")[2])


def test_the_readme_shows_its_worst_networks_and_names_date_and_commit() -> None:
    assert {"densenet", "bottlenecks"} <= {name for name, _, _ in of_readme()}
    intro = (ROOT / "README.md").read_text().partition("## Figures")[2].partition("\n|")[0]
    dated = re.findall(r"\b([0-9a-f]{8}) of (20\d\d-\d\d-\d\d)", intro)
    raw = [*RESULTS.glob("latency_held_out_*.json"), *(RESULTS / "ablation").glob("bottlenecks-*.json")]
    named = {json.loads(path.read_text())["commit"][:8] for path in raw}
    assert named == {commit for commit, _ in dated}


# Sections whose figures are settings, limits, goals or samples of what is printed, and no measurements.
NO_MEASUREMENTS: Final[dict[str, tuple[str, ...]]] = {
    "README.md": ("Mallorn",),  # versions of Python
    "compatibility.md": ("TVM",),
    "dashboard.md": ("The web page",),
    "families.md": ("How `dynamic` decides",),
    "guarantees.md": ("Machines and installation", "Wrong devices"),
    "knowledge.md": ("Where they come from",),
    "models.md": ("Quantised models",),
    "performance.md": ("What a job does for the whole model", "What a machine can do"),
    "planner.md": ("How a round is chosen", "Why did it do that?"),
    "replay.md": ("A whole job without a device",),
    "runbook.md": (
        "Backup",
        "How much is kept",
        "Limits",
        "Logs",
        "TLS, by a proxy",
        "What to do when",
    ),
    "security.md": ("Sandbox",),
    "stopping.md": ("Stopping rules", "Time limits"),
    "troubleshooting.md": ("The disk is full", "Troubleshooting", "What the verdict means"),
}
MEASUREMENT: Final = re.compile(
    r"(?<![\w.-])\d[\d,]*(?:\.\d+)? (?:us|ns|ms|s|MB|GB|GiB|MiB|KB|seconds|GFLOP/s|times)\b"
    r"|\d %|(?<![\w.])\d\.\d\d+\b"
)
KEPT: Final = re.compile(r"\]\((?:docs/)?(?:results/|\.\./benchmarks/data/)")


def unproven(page: str) -> list[str]:
    """Headings of the sections that tell figures and link to no raw file."""
    sections = re.split(r"^(?=##? )", re.sub(r"```.*?```", "", page, flags=re.DOTALL), flags=re.MULTILINE)
    return [
        section.splitlines()[0].lstrip("# ")
        for section in sections
        if MEASUREMENT.search(section) and not KEPT.search(section)
    ]


SUMMARIES: Final = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


@pytest.mark.parametrize("page", SUMMARIES, ids=lambda page: str(page.relative_to(ROOT)))
def test_a_section_with_figures_links_to_their_raw_data(page: Path) -> None:
    allowed = () if page == ROOT / "docs" / "README.md" else NO_MEASUREMENTS.get(page.name, ())
    assert sorted(unproven(page.read_text())) == sorted(allowed)


def test_a_section_without_raw_data_is_found() -> None:
    assert unproven(BARE) == ["Speed"]
    assert unproven(f"{BARE}\n[raw](results/a.json)\n") == []


WORDS: Final = {"earns", "no gain", "not measured"}
SYSTEMS: Final = [
    [cell.strip() for cell in line.strip("| ").split("|")]
    for line in (ROOT / "docs" / "systems.md").read_text().splitlines()
    if line.startswith("| ") and not line.startswith("| system")
]


@pytest.mark.parametrize("row", SYSTEMS, ids=lambda row: str(row[0]))
def test_a_system_has_one_word_for_what_it_brings_and_the_row_that_shows_it(row: list[str]) -> None:
    *others, brings, _on_a_gpu = row
    words = [word for word in WORDS if f"*{word}*" in brings]
    assert len(words) == 1
    assert not any(word in cell for cell in others for word in WORDS)
    assert words == ["not measured"] or re.search(r"\]\([\w/-]+\.md#[\w-]+\)", brings)


def test_the_gpu_column_is_what_the_recorded_arena_shows() -> None:
    page = (ROOT / "docs" / "systems.md").read_text()
    options = json.loads((RESULTS / "gpu" / "arena.json").read_text())["options"]
    assert with_column(page, options) == page
    unmeasured = [line for line in with_column(page, []).splitlines() if line.endswith(f"| {NOT_MEASURED} |")]
    assert len(unmeasured) == len(SYSTEMS)


def test_every_system_is_judged() -> None:
    assert len(SYSTEMS) == 30


def test_what_is_said_to_earn_is_ahead_in_its_raw_figures() -> None:
    fresh = json.loads((RESULTS / "fresh_batches.json").read_text())["arms"]["none"]["trials to 1.02"]
    assert fresh["difference"] > 2 * fresh["standard_error"], "a model saves trials"
    rules = json.loads((RESULTS / "stopping.json").read_text())["rules"]
    assert rules["adaptive"]["run_ms"] < rules["fixed"]["run_ms"]
    assert abs(rules["adaptive"]["winner"] - rules["fixed"]["winner"]) < 0.005, "and its winners are as good"


def test_intervals_that_held_are_counted_strictly() -> None:
    raw = json.loads((RESULTS / "tuning_gain.json").read_text())["raw"]
    held = {}
    for whole in (True, False):
        rows = [row for row in raw if row["whole"] == whole and not row["earlier_jobs"]]
        held[whole] = sum(row["low"] <= row["found"] <= row["high"] for row in rows), len(rows)
    assert held == {True: (8, 11), False: (13, 16)}
    assert "[8 of 11 intervals held]" in (ROOT / "README.md").read_text()
    assert re.search(r"whole \| 11 \| 8 .*\n\| tasks \| 16 \| 13 ", (ROOT / "docs/planner.md").read_text())


def test_what_the_readme_says_of_trials_is_made_of_raw_figures() -> None:
    """No trials over a job's end, by machine."""
    (said,) = re.findall(r"No trials over a job's end: [^(]*", (ROOT / "README.md").read_text())
    rows = (("transformer", 1), ("transformer", 2), ("tcn", 1), ("tcn", 2), ("vit", 2))
    zen4 = [us["zero"] / us["ours"] for us, _ in (of_raw(*row) for row in rows)]
    assert f"{min(zen4):.2f} to {max(zen4):.2f} on three networks of a Zen 4" in said
    runs = json.loads((RESULTS / "known.json").read_text())["runs"]
    *most, mobilenetv2, densenet = sorted(run["ratios"]["zero"] for run in runs)
    assert f"{most[0]:.2f} to {most[-1]:.2f} on six of eight, {mobilenetv2:.2f} on" in said
    assert f"{densenet:.2f} on densenet" in said
