"""The stopping rule that a job names."""

from collections.abc import Sequence

from mallorn.core.names import resolve
from mallorn.core.options import EvaluatorOptions
from mallorn.core.plugins import blaming
from workers.measure.stopping.base import StoppingRule


class NamedRule(StoppingRule):
    """Raises PluginFailed for what the rule itself raises; the timing between is none of its doing."""

    def __init__(self, name: str) -> None:
        self._part = ("stopping", name)
        with blaming(self._part):
            self._rule: StoppingRule = resolve(*self._part)()

    def next_timing(
        self, evaluator: EvaluatorOptions, run_us: Sequence[float], best_us: float | None = None
    ) -> EvaluatorOptions | None:
        with blaming(self._part):
            return self._rule.next_timing(evaluator, run_us, best_us)
