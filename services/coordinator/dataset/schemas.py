"""The dataset's numbers as the API shows them."""

from datetime import date
from typing import Annotated

from pydantic import BaseModel, Field


class CountOut(BaseModel):
    """How many measurements there are of something."""

    name: str
    count: int


class GrowthOut(BaseModel):
    """What a day added."""

    day: Annotated[date, Field(description="UTC.")]
    count: int
    total: Annotated[int, Field(description="Up to the end of the day.")]


class StatisticsOut(BaseModel):
    """Counts of measurements, most of a kind first."""

    measurements: int
    imported: Annotated[int, Field(description="Of them, from other datasets.")]
    workloads: Annotated[int, Field(description="That were measured.")]
    targets: list[CountOut]
    operators: list[CountOut]
    models: Annotated[list[CountOut], Field(description="By the networks whose jobs measured.")]
    outcomes: list[CountOut]
    days: list[GrowthOut]
    foreign: Annotated[list[CountOut], Field(description="Records of other tuners, by format.")]
