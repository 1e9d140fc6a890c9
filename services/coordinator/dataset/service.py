"""Counts the dataset."""

from dataclasses import asdict

from db.repositories.statistics import Statistics
from services.coordinator.dataset.schemas import StatisticsOut
from services.coordinator.web.parts import Parts


def dataset_stats(parts: Parts, owner: str) -> StatisticsOut:
    with parts.database.session() as session:
        return StatisticsOut.model_validate(asdict(Statistics(session).of(owner)))
