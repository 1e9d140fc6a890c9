"""An exported dataset as a process behind walls reads it, which computes the names of its rows again."""

from collections.abc import Iterator
from pathlib import Path

from db.dataset.dataset_reader import BATCH_ROWS
from db.dataset.schema import Row, Table
from workers.interfaces.model_compiler import ModelCompiler


class CheckedDataset:
    """The rows of a stranger's directory, as `import_parcel` stores them."""

    def __init__(self, graphs: ModelCompiler, directory: Path) -> None:
        """Raises InvalidRequest or NotFound unless every file can be read to its end."""
        self._graphs = graphs
        opened = graphs.open_dataset(str(directory.absolute()))
        self.rows, self.widths = opened.rows, opened.widths
        self.refused: dict[str, str] = {}

    def batches(self, table: Table, size: int = BATCH_ROWS) -> Iterator[list[Row]]:
        """The rows of a table, a bounded number at a time, each once."""
        while (read := self._graphs.next_rows(table.name, size)) is not None:
            self.refused |= read.refused
            yield read.rows
