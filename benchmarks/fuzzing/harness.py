"""One reader under libFuzzer, which atheris brings; `benchmarks.fuzz` starts it.

What a reader raises that is no MallornError is kept once for each place it comes from, and fuzzing goes on.
Only what kills the process, or takes too long or too much memory, ends it.
"""

import hashlib
import json
import sys
import traceback
from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import atheris

INSTRUMENTED: Final = ("mallorn", "tarfile", "zipfile", "json.decoder", "numpy.lib", "onnx")
SAVED_EVERY: Final = 500  # executions

with atheris.instrument_imports(include=[*INSTRUMENTED]):
    from benchmarks.fuzzing.readers import READERS
    from benchmarks.fuzzing.trying import FAULT, READ, REFUSED
    from mallorn.core.errors import MallornError


class Findings:
    """How inputs ended, in a folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._ends = Counter[str]()
        self._known: dict[str, str] = {}

    def count(self, ended: str) -> None:
        self._ends[ended] += 1
        if self._ends.total() % SAVED_EVERY == 1:
            self._save()

    def keep(self, error: BaseException, data: bytes) -> None:
        """An input that ended badly, unless one of its kind is there."""
        place = traceback.extract_tb(error.__traceback__)[-1]
        kind = f"{type(error).__name__} at {Path(place.filename).name}:{place.lineno}"
        if kind not in self._known:
            self._known[kind] = f"{error}"[:200]
            name = hashlib.sha256(kind.encode()).hexdigest()[:8]
            (self._folder / f"fault-{name}").write_bytes(data)
            self._save()

    def _save(self) -> None:
        found: dict[str, Any] = {"ends": self._ends, "faults": self._known}
        (self._folder / "ends.json").write_text(json.dumps(found))


def main() -> None:
    """Fuzz until libFuzzer's own options say that it is enough."""
    _, name, folder, *options = sys.argv
    reader, findings = READERS[name], Findings(Path(folder))

    def one(data: bytes) -> None:
        with TemporaryDirectory(prefix="mallorn-fuzz-") as scratch:
            try:
                reader.read(data, Path(scratch))
            except MallornError as error:
                if not error.message or "\n" in error.message or not error.hint:
                    findings.keep(AssertionError(f"no sentence: {error.message!r}, {error.hint!r}"), data)
                findings.count(REFUSED)
            except Exception as error:
                findings.keep(error, data)
                findings.count(FAULT)
            else:
                findings.count(READ)

    atheris.Setup([sys.argv[0], *options], one)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
