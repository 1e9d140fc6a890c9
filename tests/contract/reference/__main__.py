"""Writes the pages of reference into a directory."""

import argparse
from pathlib import Path

from mallorn.cli.terminal.output import print_error
from mallorn.core.errors import MallornError
from tests.contract.reference.pages import pages


def main() -> None:
    """Write every page into the directory that was named; exit with 1 where something lacks its words."""
    parser = argparse.ArgumentParser(prog="python -m tests.contract.reference", description=__doc__)
    parser.add_argument("directory", type=Path)
    directory: Path = parser.parse_args().directory
    try:
        written = pages()
    except MallornError as error:
        print_error(error.message, error.hint)
        raise SystemExit(1) from None
    directory.mkdir(parents=True, exist_ok=True)
    for name, text in written.items():
        (directory / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
