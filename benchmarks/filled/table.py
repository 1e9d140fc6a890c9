"""What was asked of a filled database, as the rows of a table: before, after, and the plan.

python -m benchmarks.filled.table FILE [--all]

Without `--all` what took a tenth of a second or more in either.
"""

import argparse
import json
from pathlib import Path
from typing import Any, Final

SHOWN_MS: Final = 100.0


def main() -> None:
    """Print it."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("file", type=Path)
    parser.add_argument("--all", action="store_true")
    options = parser.parse_args()
    told = json.loads(options.file.read_text())
    before, after = told["before"], told["after"]
    print(f"{before['rows']:,} rows before, {after['rows']:,} after\n")
    print(
        "| route or statement | ms before | after | how the large tables are read now |\n|---|---:|---:|---|"
    )
    for part in ("statements", "routes"):
        for name, then in before[part].items():
            now = after[part].get(name, {"ms": float("nan")})
            if options.all or max(then["ms"], now["ms"]) >= SHOWN_MS:
                print(f"| {name} | {_ms(then)} | {_ms(now)} | {_plan(now)} |")


def _ms(found: dict[str, Any]) -> str:
    return f"{found['ms']:,.0f}{' (refused)' if 'error' in found else ''}"


def _plan(found: dict[str, Any]) -> str:
    steps = [step for plan in found.get("plans", ())[:1] for step in plan]
    return "; ".join(step for step in steps if "Bitmap Heap" not in step)


if __name__ == "__main__":
    main()
