"""Stopping rules, which decide when a candidate has been timed long enough."""

from workers.measure.stopping.base import Fixed, StoppingRule, take_times

__all__ = ["Fixed", "StoppingRule", "take_times"]
