"""Bases that know nothing of a network: fit on what others measured, in a data directory of their own."""

from collections.abc import Set
from dataclasses import replace
from pathlib import Path

from cli.dataset_options import dataset
from cli.training_data import training_data_from
from mallorn.core.errors import InvalidRequest
from mallorn.core.targets import Target
from research.pretraining.pretrain import PretrainedBase, pretrain
from research.pretraining.training_data import TrainingData


def base_without(
    held_out: Set[str], source: Path, model: str, target: Target, folder: Path
) -> list[PretrainedBase]:
    """The bases for a target, stored in a new data directory; workloads held out teach nothing.

    Raises InvalidRequest where the rest does not suffice for any operator.
    """
    with (
        training_data_from(source, None, None, None, None) as taught,
        dataset(folder, None, create=True) as database,
    ):
        data = without(taught.data, held_out)
        found = list(pretrain(database, data, model, lowering=taught.lowering, home=target))
    stored = [base for base in found if base.name is not None]
    if not stored:
        raise InvalidRequest(
            f"{source} has too few measurements of other networks: {data.rows} rows",
            hint="mallorn tune OTHER.onnx --data DIR   (then --from DIR)",
        )
    return stored


def without(data: TrainingData, held_out: Set[str]) -> TrainingData:
    """The training data of all other workloads."""
    return replace(data, tasks=[task for task in data.tasks if task.workload not in held_out])
