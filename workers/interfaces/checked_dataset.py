"""Reads an exported dataset in a sandboxed process that recomputes the keys of its rows."""

from collections.abc import Iterator
from pathlib import Path

from mallorn.db.dataset.export_files import BATCH_ROWS, Row, Table
from mallorn.workers.interfaces.model_compiler import ModelCompiler


class CheckedDataset:
    """Reads an untrusted dataset directory in a child process, for `import_export` to
    store. `refused` gives, by row key, why rows were refused."""

    def __init__(self, graphs: ModelCompiler, directory: Path) -> None:
        """Open the directory. Raises NotFound for missing files, InvalidRequest for damage."""
        self._graphs = graphs
        dataset = graphs.open_dataset(str(directory.absolute()))
        self.rows, self.widths = dataset.rows, dataset.widths
        self.refused: dict[str, str] = {}

    def batches(self, table: Table, size: int = BATCH_ROWS) -> Iterator[list[Row]]:
        """Yield the rows of a table once, in batches of at most `size` rows."""
        while (batch := self._graphs.next_rows(table.name, size)) is not None:
            self.refused |= batch.refused
            yield batch.rows
