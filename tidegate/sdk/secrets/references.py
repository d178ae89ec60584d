"""References to secrets: `${NAME}` is an environment variable, `${file:/path}` the contents of a file.

Connectors resolve references when they open a reader or an attempt, in the process that uses the value. A file is read
again each time, so that credentials can be replaced while a job runs. `$${` is a literal `${`.

>>> import os
>>> os.environ["TIDE_USER"] = "ebb"
>>> resolved("https://${TIDE_USER}@example.org/$${x}")
'https://ebb@example.org/${x}'
"""

from __future__ import annotations

import os
import re
from typing import Final

from tidegate.sdk.errors import BuildError, RunError, shorten
from tidegate.sdk.secrets.redaction import conceal

_REFERENCE: Final = re.compile(r"\$(?P<escape>\$\{)|\$\{(?P<name>[^{}]*)\}|(?P<open>\$\{)")
_VARIABLE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def resolved(text: str) -> str:
    """The text with all references replaced. Their values are redacted in messages from then on.

    Raises BuildError for a `${…}` that is no reference; RunError, naming the reference, for a variable or file that
    this process can't read.
    """
    return resolved_with_values(text)[0]


def resolved_with_values(text: str) -> tuple[str, dict[str, str]]:
    """The same, with the value of each reference as the text has it."""
    values: dict[str, str] = {}

    def replaced(found: re.Match[str]) -> str:
        if found["escape"]:
            return found["escape"]
        if found.group() not in values:
            values[found.group()] = _value(found)
        return values[found.group()]

    return (_REFERENCE.sub(replaced, text) if "${" in text else text), values


def _value(found: re.Match[str]) -> str:
    name = found["name"]
    if name is None or not (_VARIABLE.fullmatch(name) or name.startswith("file:/")):
        raise BuildError(
            f"{shorten(found.group())} is no reference to a secret: write ${{NAME}} for an environment variable, "
            "${file:/path} for the contents of a file, or $${ for a literal ${"
        )
    value = _of_file(name[5:]) if name.startswith("file:") else _of_variable(name)
    conceal(value)
    return value


def _of_variable(name: str) -> str:
    try:
        return os.environ[name]
    except KeyError:
        raise RunError(
            f"${{{name}}}: the process that runs this step (pid {os.getpid()}) has no environment variable {name}: set "
            "it where the workers are started"
        ) from None


def _of_file(path: str) -> str:
    try:
        with open(path, encoding="utf-8") as file:
            return file.read().rstrip("\n")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not UTF-8 text"
        raise RunError(f"${{file:{path}}}: the secret can't be read: {reason}") from None
