"""The StoppingRule seam and its first rule: when is one timing of a candidate good enough?"""

from workers.measure.stopping.base import StoppingRule, take_times
from workers.measure.stopping.fixed import Fixed

__all__ = ["Fixed", "StoppingRule", "take_times"]
