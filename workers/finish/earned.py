"""What trials earned: the winners beside the first guesses, all measured again in the same contests."""

from collections import defaultdict
from collections.abc import Sequence

from mallorn.core.values.report import Earned, FinishReport
from workers.finish.winners import Winner


def earned(winners: Sequence[Winner]) -> FinishReport:
    """Sums over the tasks whose first guess ran; nothing to tell where none did."""
    guessed_us = found_us = 0.0
    saved_us = defaultdict[str, float](float)
    for winner in winners:
        if winner.guess_us is None:
            continue
        weight, candidate = winner.contest.task.weight, winner.contest.slots[winner.slot].candidate
        guessed_us += weight * winner.guess_us
        found_us += weight * winner.latency_us
        if candidate != winner.contest.guess:
            saved_us[winner.contest.means[candidate]] += weight * (winner.guess_us - winner.latency_us)
    if not guessed_us:
        return FinishReport()
    return FinishReport(earned=Earned(guessed_us=guessed_us, found_us=found_us, saved_us=dict(saved_us)))
