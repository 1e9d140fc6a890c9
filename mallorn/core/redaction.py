"""Keeps secrets out of all that is printed: errors, logs, tracebacks."""

import re
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote

if TYPE_CHECKING:
    from pydantic import SecretStr  # run_batch.py has this module without pydantic

HIDDEN: Final = "***"
LEAST_CHARS: Final = 8
LEAST_LETTERS: Final = 16  # shorter ones are words as well, as "postgres": they are hidden within URLs alone
_known: set[str] = set()
# Strangers write what these search, on the event loop: each takes a time that grows linearly with the text.
_WORD: Final = re.compile(r"""[^\s'"]+""")
_QUERY: Final = re.compile(r"""((?:pass\w{0,40}|pwd|secret\w{0,40}|token)=)[^\s&'"]+""", re.IGNORECASE)


def hide(secret: "SecretStr | str | None") -> None:
    """From now on this is printed nowhere; of several with commas between them none."""
    text = secret if isinstance(secret, str) else secret.get_secret_value() if secret is not None else ""
    _known.update(filter(_is_no_word, map(str.strip, text.split(","))))


def hide_password(url: str | None) -> None:
    """From now on the password in this URL is printed nowhere."""
    login = (url or "").rpartition("@")[0]
    _, slashes, rest = login.partition("//")
    password = rest.partition(":")[2] if slashes else login.rpartition(":")[2]
    _known.update(filter(_is_no_word, (password, unquote(password))))


def redact(text: str) -> str:
    """The same without what is secret in it."""
    for word in sorted(_known, key=len, reverse=True):
        text = text.replace(word, HIDDEN)
    if "@" in text:
        text = _WORD.sub(_without_login, text)
    return _QUERY.sub(rf"\1{HIDDEN}", text)


def _without_login(found: re.Match[str]) -> str:
    """Return a word with the login of the URL in it hidden, also where the URL is broken.

    A login begins behind `//`, or behind the first of two colons that no slash parts from an `@`:
    `operator:matmul/xgboost@9` holds none. It ends at the last `@` of the word.
    """
    *parts, rest = found[0].split("@")
    login = "@".join(parts)
    begins = [login.find("//") + 2] if "//" in login else []
    end = 0
    for part in parts:
        piece = part[part.rfind("/") + 1 :]
        end += len(part) + 1
        if piece.count(":") > 1:
            begins.append(end - 1 - len(piece) + piece.index(":") + 1)
            break
    return f"{login[: min(begins)]}{HIDDEN}@{rest}" if begins else found[0]


def _is_no_word(secret: str) -> bool:
    return len(secret) >= (LEAST_LETTERS if secret.isalpha() else LEAST_CHARS)
