"""How soon a worker hears again, after its broker was away for so long, in every way.

python -m benchmarks.broker [--away-sec 20 60] [--json FILE]

A word is sent again and again, a second each: figures are that coarse.
"""

import argparse
import json
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from benchmarks.broker.weather import FAULTS, Fault, Heard
from benchmarks.hosts import describe_host

PATIENCE_SEC: Final = 300.0


def main() -> None:
    """Take the broker away, give it back, and wait."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--away-sec", type=float, nargs="+", default=[20.0, 60.0])
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    found = {}
    for fault in FAULTS:
        for away_sec in options.away_sec:
            found[f"{fault.__name__} for {away_sec:g} s"] = sec = heard_again_sec(fault, away_sec)
            print(f"{fault.__name__:9} for {away_sec:3.0f} s: heard again after {sec:5.1f} s", flush=True)
    if options.json:
        raw = {"headline": max(found.values()), "heard_again_sec": found}
        options.json.write_text(json.dumps(raw | describe_host(), indent=1) + "\n")
    print(f"heard again after at most {max(found.values()):.1f} s")


def heard_again_sec(fault: Fault, away_sec: float) -> float:
    """From the broker's return to the first word that its worker hears."""
    with TemporaryDirectory(prefix="mallorn-broker-") as folder, Heard(Path(folder)) as broker:
        _wait(broker)
        with fault(broker):
            time.sleep(away_sec)
        return round(_wait(broker), 1)


def _wait(broker: Heard) -> float:
    began_sec = time.monotonic()
    while not broker.is_heard():
        if time.monotonic() - began_sec > PATIENCE_SEC:
            raise SystemExit(f"the worker is deaf after {PATIENCE_SEC:.0f} s")
    return time.monotonic() - began_sec


if __name__ == "__main__":
    main()
