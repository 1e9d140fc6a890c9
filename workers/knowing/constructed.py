"""The constructor's first guesses: nothing is known but the machine."""

from collections.abc import Iterator

from sqlalchemy.orm import Session

from mallorn.core.values.report import Source, Sure
from workers.knowing.answer import Answer, Knowledge, Question


class Constructed(Knowledge):
    """The space's defaults, best guess first."""

    def __call__(self, session: Session, question: Question) -> Iterator[Answer]:
        because = "constructed for what the machine computes and moves"
        for candidate in question.space.defaults():
            yield Answer(candidate, Source.CONSTRUCTED, because, Sure.GUESSED)
