"""Coverage-guided fuzzing of file readers: `python -m benchmarks.fuzz --seconds 600`.

Each reader gets a new process, an equal part of the seconds, and valid inputs to start from. Needs
atheris (`pip install atheris==3.0.0`; newer ones for Pythons after 3.11), which tests do not use.
"""

import argparse
import json
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from benchmarks.fuzzing.readers import READERS
from benchmarks.hosts import describe_host

LONGEST_SEC: Final = 20  # per input
MEMORY_MB: Final = 4096
LONGEST_BYTES: Final = 1 << 19  # a small cost model has half as many
SEED: Final = 1
COVERED: Final = re.compile(r"^#\d+\s+(INITED|NEW|REDUCE|pulse|DONE)\s+cov: (\d+)", re.MULTILINE)
RUN: Final = re.compile(r"stat::number_of_executed_units: (\d+)")
PEAK: Final = re.compile(r"stat::peak_rss_mb:\s+(\d+)")


def fuzzed(name: str, seconds: int, kept: Path) -> dict[str, Any]:
    """Fuzz a reader; return counts and faults. Faulty inputs are stored in `kept`."""
    corpus, findings = kept / name / "corpus", kept / name / "findings"
    for folder in (corpus, findings):
        folder.mkdir(parents=True, exist_ok=True)
    for number, data in enumerate(READERS[name].seeds()):
        (corpus / f"seed{number}").write_bytes(data)
    options = {
        "max_total_time": seconds,
        "timeout": LONGEST_SEC,
        "rss_limit_mb": MEMORY_MB,
        "max_len": LONGEST_BYTES,
        "print_final_stats": 1,
        "artifact_prefix": f"{findings}/",
        "seed": SEED,
    }
    arguments = [f"-{option}={value}" for option, value in options.items()]
    process = subprocess.run(
        [sys.executable, "-m", "benchmarks.fuzzing.harness", name, str(findings), *arguments, str(corpus)],
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
    )
    return _results(process.stderr, findings) | {"exit": process.returncode, "seconds": seconds}


def _results(log: str, findings: Path) -> dict[str, Any]:
    covered = [int(edges) for _, edges in COVERED.findall(log)]
    if not covered:
        sys.exit(f"nothing was fuzzed:\n{log[-2000:]}")
    ends = json.loads((findings / "ends.json").read_text())
    return {
        "executions": int((RUN.findall(log) or [0])[0]),
        "branches_of_seeds": covered[0],
        "branches": max(covered),
        "peak_mb": int((PEAK.findall(log) or [0])[0]),
        "killed_by": sorted(each.name for each in findings.glob("*-*") if not each.name.startswith("fault-")),
        **ends,
    }


def main() -> None:
    """Fuzz all readers in turn and print the results."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=int, default=600, help="in all")
    parser.add_argument("--readers", nargs="+", choices=READERS, default=list(READERS))
    parser.add_argument("--kept", type=Path, help="a folder for corpora and findings, used again")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    if find_spec("atheris") is None:
        sys.exit("atheris is not installed: pip install atheris==3.0.0")
    results = {}
    with TemporaryDirectory(prefix="mallorn-fuzz-") as scratch:
        for name in args.readers:
            results[name] = fuzzed(name, args.seconds // len(args.readers), args.kept or Path(scratch))
            print(f"{name}: {json.dumps(results[name])}", flush=True)
    bad = sum(len(each["faults"]) + len(each["killed_by"]) for each in results.values())
    if args.json:
        raw = {"benchmark": "fuzz", "seed": SEED, **describe_host(), "readers": results, "headline": bad}
        args.json.write_text(json.dumps(raw, indent=1) + "\n")
    runs = sum(each["executions"] for each in results.values())
    print(f"{runs:,} inputs, {bad} kinds of bad endings")


if __name__ == "__main__":
    main()
