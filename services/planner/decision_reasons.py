"""Reasons of a planning decision, in figures and words, for the decision log."""

from typing import Final

from mallorn.core.values.decision_log import RoundForecast, RoundNotes
from services.planner.belief import Forecast
from services.planner.planner_values import TaskView
from services.planner.policy import Arm, TaskChoice

SMALLEST_US: Final = 0.01  # smaller times do not help a reader


def reason(choice: TaskChoice, ahead: Forecast, policy: str) -> RoundNotes:
    """Return the notes on why a round was planned, with its forecast."""
    notes = {"policy": policy, "score": choice.score, "why": choice.why, "best_us": choice.task.best_us}
    forecast = {name: figure(getattr(ahead, name)) for name in RoundForecast.model_fields}
    return RoundNotes.model_validate({**notes, "forecast": forecast, **choice.figures})


def in_words(arm: Arm) -> str:
    """Describe the expected gain of an arm in words."""
    task, ahead = arm.task, arm.forecast
    if task.best_us is None:
        return f"expects {_us(ahead.expected_us)} us x {task.weight} in {arm.seconds:.1f} s"
    drop = f"expects {_us(ahead.gain_us)} us off {_us(task.best_us)} us x {task.weight}"
    return f"{drop} in {arm.seconds:.1f} s"


def weighted_us(task: TaskView, ahead: Forecast) -> float:
    """Return a task's weighted latency: measured, or else expected."""
    return task.weight * (ahead.expected_us if task.best_us is None else task.best_us)


def figure(value: float) -> float:
    """Round a number to six significant digits."""
    return float(f"{value:.6g}")


def _us(value: float) -> str:
    if value < SMALLEST_US:
        return f"under {SMALLEST_US}"
    return f"{value:.3g}" if value < 1000 else f"{value:.0f}"
