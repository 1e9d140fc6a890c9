"""Say what a library takes and returns, if this machine can run it: python -m mallorn_runtime FILE.so"""

import sys

from mallorn_runtime.library_file import RuntimeRefusal, check_machine, escape_text, read_library_file

try:
    library = read_library_file(sys.argv[1])  # loading it would run its constructors
    check_machine(library)
except (RuntimeRefusal, IndexError) as error:
    sys.exit(f"error: {error}" if len(sys.argv) > 1 else __doc__)
for kind, infos in (("input", library.inputs), ("output", library.outputs)):
    for info in infos:
        sys.stdout.write(escape_text(f"{kind} {info.name}: {info}") + "\n")
for name, (low, high) in library.ranges.items():
    sys.stdout.write(escape_text(f"{name}: {low} to {high}") + "\n")
