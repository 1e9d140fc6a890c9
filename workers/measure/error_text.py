"""Error texts as they are stored with a measurement."""

from mallorn.core.redaction import redact

TEXT_LIMIT = 1000
HEAD_LIMIT = 400


def shorten(text: str) -> str:
    """Return the head, which says what went wrong, and the last lines, without the secrets in them."""
    text = text.strip()
    if len(text) <= TEXT_LIMIT:
        return redact(text)
    head = text[:HEAD_LIMIT].rstrip()
    tail = text[len(text) - (TEXT_LIMIT - HEAD_LIMIT - 5) :]
    return redact(f"{head}\n...\n{tail.partition(chr(10))[2] or tail}")
