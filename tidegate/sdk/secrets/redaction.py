"""Redaction: the values of secrets and the passwords of URLs never appear in errors, names or logs.

>>> redacted("can't open s3://key:s3cr3t@bucket/a")
"can't open s3://***@bucket/a"
>>> conceal("open sesame")
>>> redacted("the door said 'open sesame'")
"the door said '***'"
"""

from __future__ import annotations

import re
from typing import Any, Final

SHORTEST: Final = 4
"""Characters. Shorter values are not redacted: they would be found in any text by chance."""

_MOST: Final = 1_000
_HIDDEN: Final = "***"
_CREDENTIALS: Final = re.compile(r"(?<=://)[^/\s:@?#]*:[^/\s?#]+(?=@)")
_concealed: Final[dict[str, None]] = {}


def conceal(value: Any) -> None:
    """Redact this value from now on. Of credentials that change all the time, only the latest are remembered."""
    if isinstance(value, bytes):
        value = value.decode(errors="replace")
    if isinstance(value, str) and len(value) >= SHORTEST:
        _concealed.pop(value, None)
        _concealed[value] = None
        if len(_concealed) > _MOST:
            del _concealed[next(iter(_concealed))]


def redacted(text: str) -> str:
    """The text with `***` in place of all secrets and of the user and password of each URL."""
    if "://" in text:
        text = _CREDENTIALS.sub(_HIDDEN, text)
    for value in sorted(_concealed, key=len, reverse=True):  # a value may contain another
        if value in text:
            text = text.replace(value, _HIDDEN)
    return text
