"""Networks in 8 bits: the gain, the best rival, and who is ahead."""

import pytest

from benchmarks.quantised_report import FLOAT, INT8, RIVAL, RIVAL_FLOAT, Cell, headlines, table


def cell(name: str, int8_us: float, threads: int = 1, **others: float) -> Cell:
    latency = {FLOAT: 4000.0, RIVAL_FLOAT: 1.0, INT8: int8_us, RIVAL: 2000.0, **others}
    return Cell(name, threads, latency, dict.fromkeys(latency, 0.01))


def test_the_gain_is_over_our_own_float32() -> None:
    assert cell("a", 1000.0).gain == 4.0


def test_rivals_are_those_on_the_quantised_file() -> None:
    assert cell("a", 1000.0).best_rival == RIVAL
    assert cell("a", 1000.0, openvino_cpu=500.0).over_rival == 2.0


def test_headlines_are_of_each_number_of_threads() -> None:
    cells = [cell("a", 1000.0), cell("b", 1900.0), cell("a", 2000.0, threads=2)]
    one, two = headlines(cells)
    assert one == "1 threads: gain 2.90, over the best rival 0.69, ahead by a tenth on 1 of 2"
    assert two.startswith("2 threads: gain 2.00")


def test_an_engine_that_lacks_a_network_has_an_empty_place() -> None:
    lines = table([cell("a", 1000.0), cell("b", 1000.0, openvino_cpu=500.0)]).splitlines()
    assert "|  |" in lines[2]
    assert lines[3].endswith("| 4.00 | 2.00 (openvino_cpu) | 1.0e-02 | 1.0e-02 |")


def test_a_cell_reads_what_was_stored() -> None:
    stored = {"model": "a", "threads": 2, "latency_us": {INT8: {"median": 5.0}}, "errors": {INT8: 0.5}}
    assert Cell.of(stored).latency_us == pytest.approx({INT8: 5.0})
