"""Base models trained without the workloads of a network, in a new data directory."""

from collections.abc import Set
from dataclasses import replace
from pathlib import Path

from mallorn.cli.dataset_options import dataset
from mallorn.core.errors import InvalidRequest
from mallorn.core.targets import Target
from mallorn_research.commands.train_and_evaluate import open_training_data
from mallorn_research.pretraining.pretrain import PretrainedBase, pretrain
from mallorn_research.pretraining.training_data import TrainingData


def base_without(
    held_out: Set[str], source: Path, model: str, target: Target, folder: Path
) -> list[PretrainedBase]:
    """Pretrain bases for a target without the held-out workloads, in a new data directory.

    Raises InvalidRequest if the other rows suffice for no operator.
    """
    with (
        open_training_data(source, None, None, None, None) as source_data,
        dataset(folder, None, create=True) as database,
    ):
        data = without(source_data.data, held_out)
        bases = list(pretrain(database, data, model, lowering=source_data.lowering, home=target))
    stored = [base for base in bases if base.name is not None]
    if not stored:
        raise InvalidRequest(
            f"{source} has too few measurements of other networks: {data.rows} rows",
            hint="mallorn tune OTHER.onnx --data DIR   (then --from DIR)",
        )
    return stored


def without(data: TrainingData, held_out: Set[str]) -> TrainingData:
    """Return the training data without the held-out workloads."""
    return replace(data, tasks=[task for task in data.tasks if task.workload not in held_out])
