"""How much an owner may take up at a time, where the settings say so."""

from typing import Final

from sqlalchemy.orm import Session

from db.repositories.owner_usage import Usage
from mallorn.core.errors import TooMany
from mallorn.core.settings import Settings

AGAIN_SEC: Final = 60


def check_work(session: Session, settings: Settings, owner: str) -> None:
    """Raise TooMany if the owner's jobs, those of this transaction too, are more than they may be."""
    usage, jobs, trials = Usage(session), settings.quota_jobs, settings.quota_trials
    if jobs and (found := usage.jobs(owner)) > jobs:
        raise TooMany(
            f"{owner} may have {jobs} jobs at a time, and this would be {found}",
            hint="wait until one ends, or: mallorn pause JOB",
            retry_sec=AGAIN_SEC,
        )
    if trials and (found := usage.trials(owner)) > trials:
        raise TooMany(
            f"{owner} may have {trials:,} trials ahead, and this would make {found:,}",
            hint="ask for fewer with --trials, or wait until a job ends",
            retry_sec=AGAIN_SEC,
        )


def check_storage(session: Session, settings: Settings, owner: str) -> None:
    """Raise TooMany if the owner's models, those of this transaction too, take more than they may."""
    most = settings.quota_model_bytes
    if most and (found := Usage(session).model_bytes(owner)) > most:
        raise TooMany(
            f"{owner} may keep {most:,} bytes of models, and this would make {found:,}",
            hint="mallorn models rm MODEL",
            retry_sec=AGAIN_SEC,
        )
