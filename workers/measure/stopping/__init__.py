"""Stopping rules, which decide when a candidate has been timed long enough."""

from mallorn.workers.measure.stopping.stopping_rule import Fixed, StoppingRule, time_until_rule_stops

__all__ = ["Fixed", "StoppingRule", "time_until_rule_stops"]
