"""Command-line arguments of benchmarks that take networks from a folder."""

import argparse
from collections.abc import Iterator
from pathlib import Path


def folder_parser(doc: str | None) -> argparse.ArgumentParser:
    """Return a parser of `FOLDER [NAME ...]` whose help is `doc`, with its line breaks."""
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("names", nargs="*", metavar="NAME", help="files without their ending; all by default")
    return parser


def files_of(arguments: argparse.Namespace, pattern: str = "*.onnx") -> Iterator[Path]:
    """Yield the named files of the folder, or all, sorted."""
    for path in sorted(arguments.folder.glob(pattern)):
        if not arguments.names or path.stem in arguments.names:
            yield path
