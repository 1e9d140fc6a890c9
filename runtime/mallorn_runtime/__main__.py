"""Say what a library takes and returns, if this machine can run it: python -m mallorn_runtime FILE.so"""

import sys

from mallorn_runtime.library_file import RuntimeRefusal
from mallorn_runtime.session import Session

try:
    session = Session(sys.argv[1])
except (RuntimeRefusal, IndexError) as error:
    sys.exit(f"error: {error}" if len(sys.argv) > 1 else __doc__)
for kind, infos in (("input", session.inputs), ("output", session.outputs)):
    for info in infos:
        sys.stdout.write(f"{kind} {info.name}: {info}\n")
for name, (low, high) in session.ranges.items():
    sys.stdout.write(f"{name}: {low} to {high}\n")
