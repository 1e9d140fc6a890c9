"""Removal of secrets from everything that is printed: errors, logs, tracebacks."""

import re
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote

if TYPE_CHECKING:
    from pydantic import SecretStr  # run_batch.py uses this module without pydantic

HIDDEN: Final = "***"
LEAST_CHARS: Final = 8
LEAST_LETTERS: Final = 16  # shorter ones may be words such as "postgres": hidden only in URLs
_known: set[str] = set()
# These search untrusted text on the event loop, so each runs in linear time.
_WORD: Final = re.compile(r"""[^\s'"]+""")
_QUERY: Final = re.compile(r"""((?:pass\w{0,40}|pwd|secret\w{0,40}|token)=)[^\s&'"]+""", re.IGNORECASE)


def hide(secret: "SecretStr | str | None") -> None:
    """Redact these comma-separated secrets from now on, except short ones."""
    text = secret if isinstance(secret, str) else secret.get_secret_value() if secret is not None else ""
    _known.update(filter(_is_long_enough, map(str.strip, text.split(","))))


def hide_password(url: str | None) -> None:
    """Redact the password in this URL from now on, unless it is short."""
    login = (url or "").rpartition("@")[0]
    _, slashes, authority = login.partition("//")
    password = authority.partition(":")[2] if slashes else login.rpartition(":")[2]
    _known.update(filter(_is_long_enough, (password, unquote(password))))


def redact(text: str) -> str:
    """Return the text without known secrets, logins in URLs and secret parameters."""
    for word in sorted(_known, key=len, reverse=True):
        text = text.replace(word, HIDDEN)
    if "@" in text:
        text = _WORD.sub(_without_login, text)
    return _QUERY.sub(rf"\1{HIDDEN}", text)


def _without_login(match: re.Match[str]) -> str:
    """Return a word with the login of its URL hidden, even if the URL is malformed.

    A login begins after `//`, or after the first of two or more colons that no slash
    separates from an `@`: `operator:matmul/xgboost@9` has no login. It ends at the last `@`
    of the word.
    """
    *parts, host = match[0].split("@")
    login = "@".join(parts)
    begins = [login.find("//") + 2] if "//" in login else []
    end = 0
    for part in parts:
        piece = part[part.rfind("/") + 1 :]
        end += len(part) + 1
        if piece.count(":") > 1:
            begins.append(end - 1 - len(piece) + piece.index(":") + 1)
            break
    return f"{login[: min(begins)]}{HIDDEN}@{host}" if begins else match[0]


def _is_long_enough(secret: str) -> bool:
    return len(secret) >= (LEAST_LETTERS if secret.isalpha() else LEAST_CHARS)
