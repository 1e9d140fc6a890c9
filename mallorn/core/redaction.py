"""Keeps secrets out of all that is printed: errors, logs, tracebacks."""

import re
from typing import Final
from urllib.parse import unquote

from pydantic import SecretStr

HIDDEN: Final = "***"
LEAST_CHARS: Final = 8
LEAST_LETTERS: Final = 16  # shorter ones are words as well, as "postgres": they are hidden within URLs alone
_known: set[str] = set()
# Of URLs, broken ones too, whoever wrote them; `operator:matmul/xgboost@9` is none.
_LOGIN: Final = re.compile(r"""(//|:(?=[^\s'"/@]*:[^\s'"/@]*@))[^\s'"]{0,300}@""")
_QUERY: Final = re.compile(r"""((?:pass\w*|pwd|secret\w*|token)=)[^\s&'"]+""", re.IGNORECASE)


def hide(secret: SecretStr | str | None) -> None:
    """From now on this is printed nowhere; of several with commas between them none."""
    text = secret.get_secret_value() if isinstance(secret, SecretStr) else secret or ""
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
    return _QUERY.sub(rf"\1{HIDDEN}", _LOGIN.sub(rf"\1{HIDDEN}@", text))


def _is_no_word(secret: str) -> bool:
    return len(secret) >= (LEAST_LETTERS if secret.isalpha() else LEAST_CHARS)
