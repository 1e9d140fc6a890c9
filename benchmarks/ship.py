"""Make the bundled files: base models of the bundled measurements, or of replacements.

python -m benchmarks.ship [--from DIR ...] [--model xgboost]

Each DIR is an output of `mallorn dataset export`; its measurements replace those in db/bundled. Without
DIR, bases are fitted to the bundled rows again. The same rows give the same files.
"""

import argparse
import sys
import tempfile
from pathlib import Path

from benchmarks.shipping import ship
from mallorn.core.errors import MallornError
from mallorn.core.job_options import JobOptions
from mallorn.db.bundled.load_bundled import FOLDER


def main() -> None:
    """Make the files, and print each base's rows, tasks and accuracy."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--from", dest="sources", type=Path, nargs="+", default=[], metavar="DIR")
    parser.add_argument("--model", nargs="+", default=[JobOptions().cost_model], help="of the bases")
    args = parser.parse_args()
    try:
        with tempfile.TemporaryDirectory(prefix="mallorn-ship-") as scratch:
            for base in ship(args.sources, args.model, FOLDER, Path(scratch)):
                judged = f"{base.metrics.pairwise} of pairs in order ({base.metrics.split})"
                print(f"{base.name} of {base.target}: {base.rows} rows of {base.tasks} tasks, {judged}")
    except MallornError as error:
        sys.exit(f"{error.message}\n{error.hint}")
    size = sum(path.stat().st_size for path in FOLDER.rglob("*") if path.is_file())
    print(f"{FOLDER}: {size / 1e6:.1f} MB")


if __name__ == "__main__":
    main()
