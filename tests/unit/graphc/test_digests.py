"""What is compiled for the example networks is what it was: schedules that were measured still match."""

import json
import subprocess
import sys

import pytest

from benchmarks.digests import CASES, FROZEN, TASK, Case, compile_case, differences, draw_third
from benchmarks.networks.quantised import QUANTISED

SMALL = {"mlp", "recommender", "squeeze", *QUANTISED}
X86 = {"avx2", "avx512", "amx"}


@pytest.mark.parametrize(
    "case", [case for case in CASES if case[0] in SMALL and case[1] in X86], ids="-".join
)
def test_small_networks_have_the_tasks_that_were_frozen(case: Case) -> None:
    network, target = case
    stored = json.loads(FROZEN.read_text())[network][target]
    current = compile_case(*case, has_texts=False).digests()
    tasks = ({name: told for name, told in each.items() if TASK in name} for each in (current, stored))
    assert differences(*tasks) == []


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize("case", CASES, ids="-".join)
def test_what_is_compiled_is_what_it_was(case: Case) -> None:
    """Each case runs in a process of its own, because another test may have loaded CUDA's compiler here."""
    command = [sys.executable, "-m", "benchmarks.digests", "--case", "/".join(case)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_digests_tell_what_is_new_gone_or_different() -> None:
    assert differences({"a": "1", "b": "2", "c": "3"}, {"a": "1", "b": "4", "d": "5"}) == ["b", "c", "d"]


def test_other_code_draws_another_third(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn = set()
    for code in range(20):
        monkeypatch.setattr("benchmarks.digests.source_parts", lambda code=code: {"mallorn.graphc": code})
        drawn |= {*draw_third(CASES)}
    assert drawn == {*CASES}
