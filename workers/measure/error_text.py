"""Error texts as they are stored with a measurement."""

TEXT_LIMIT = 1000
HEAD_LIMIT = 400


def shorten(text: str) -> str:
    """The head, which says what went wrong, and the last lines, which say where it ended."""
    text = text.strip()
    if len(text) <= TEXT_LIMIT:
        return text
    head = text[:HEAD_LIMIT].rstrip()
    tail = text[len(text) - (TEXT_LIMIT - HEAD_LIMIT - 5) :]
    return f"{head}\n...\n{tail.partition(chr(10))[2] or tail}"
