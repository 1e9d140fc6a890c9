"""Reads every file of a folder with one reader, and tells how each ends.

    python -m benchmarks.fuzzing.trying READER FOLDER --memory-mb 4096

A line of JSON a file, written before the next one is read: a process that dies has named its last.
"""

import argparse
import json
import resource
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks.fuzzing.readers import READERS, Reader
from mallorn.core.errors import MallornError

READ, REFUSED, FAULT = "read", "refused", "fault"


def ending(reader: Reader, data: bytes) -> dict[str, Any]:
    """How the reading of an input ends, and what is said."""
    with TemporaryDirectory(prefix="mallorn-fuzz-") as folder:
        try:
            found = reader.read(data, Path(folder))
        except MallornError as error:
            return {"ended": REFUSED, "said": error.message, "hint": error.hint}
        except Exception as error:
            return {"ended": FAULT, "said": f"{type(error).__name__}: {error}"[:300], "hint": ""}
    told = [str(each) for each in found] if isinstance(found, list) else []
    return {"ended": READ, "said": told[0] if told else "", "hint": ""}


def main() -> None:
    """Read them all."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("reader", choices=READERS)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--memory-mb", type=int, default=4096, help="of address space")
    args = parser.parse_args()
    reader = READERS[args.reader]
    for data in reader.seeds():  # what is loaded on the way is no memory of an input
        assert ending(reader, data)["ended"] == READ, ending(reader, data)
    resource.setrlimit(resource.RLIMIT_AS, (args.memory_mb << 20, resource.RLIM_INFINITY))
    for file in sorted(args.folder.iterdir()):
        print(json.dumps({"file": file.name, "ended": "died"}), flush=True)
        found = ending(reader, file.read_bytes())
        peak_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
        print(json.dumps({"file": file.name, **found, "peak_mb": peak_mb}), flush=True)
    sys.stdout.flush()


if __name__ == "__main__":
    main()
