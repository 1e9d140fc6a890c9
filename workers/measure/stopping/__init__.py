"""The StoppingRule seam and its first rule: when is one timing of a candidate good enough?"""

from workers.measure.stopping.base import Fixed, StoppingRule, take_times

__all__ = ["Fixed", "StoppingRule", "take_times"]
