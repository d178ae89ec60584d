"""Secrets are pickled as names; this process knows their values by name.

A pickled pipeline holds the name of a secret in place of its value. The value travels beside the pipeline, in files
and messages that only this user can read, and each process that loads the author's code registers it first.

>>> from pydantic import SecretStr
>>> name = register(SecretStr("open sesame"))
>>> reveal(name), reveal(name).get_secret_value()
(SecretStr('**********'), 'open sesame')
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from tidegate.sdk.errors import LoadError
from tidegate.sdk.secrets.redaction import conceal

if TYPE_CHECKING:
    from pydantic import SecretBytes, SecretStr

SecretValue: TypeAlias = str | bytes

PREFIX: Final = "tidegate-secret:"
"""Marks a name in a pickle, so that the names in a sealed pipeline are found without unpickling it."""

_MARKED: Final = re.compile(re.escape(PREFIX.encode()) + rb"([\w.-]+)")
_values: Final[dict[str, SecretValue]] = {}
_names: Final[dict[SecretValue, str]] = {}
_suggested: Final[dict[SecretValue, str]] = {}


def suggest(secret: SecretStr | SecretBytes, name: str) -> None:
    """Suggest the name under which a secret is registered if a pipeline uses it: that of the option that holds it."""
    _suggested[secret.get_secret_value()] = name


def register(secret: SecretStr | SecretBytes) -> str:
    """Register a secret, and return its name.

    Equal values share one name: the suggested one if it is free, or else `secret-<n>`, numbered in order.
    """
    value: SecretValue = secret.get_secret_value()
    known = _names.get(value)
    if known is not None:
        return known
    name = _suggested.get(value)
    if name is None or name in _values:
        name = next(made for n in range(len(_values) + 1) if (made := f"secret-{n + 1}") not in _values)
    _add(name, value)
    return name


def install_secrets(values: Mapping[str, SecretValue]) -> None:
    """Register the values that another process has sent, in place of earlier ones of the same names."""
    for name, value in values.items():
        previous = _values.get(name)
        if previous is not None and previous != value:
            _names.pop(previous, None)
        _add(name, value)


def values_of(names: Iterable[str]) -> dict[str, SecretValue]:
    """The values of the secrets with these names that this process knows."""
    return {name: _values[name] for name in names if name in _values}


def names_in(pickled: bytes) -> list[str]:
    """The names of the secrets that a pickle refers to, in the order of their first use."""
    if PREFIX.encode() not in pickled:
        return []
    return list(dict.fromkeys(found.decode() for found in _MARKED.findall(pickled)))


def is_secret(value: Any) -> bool:
    """Whether a value is a `SecretStr` or `SecretBytes`. Doesn't import pydantic: without it there are none."""
    pydantic = sys.modules.get("pydantic.types")
    return pydantic is not None and isinstance(value, (pydantic.SecretStr, pydantic.SecretBytes))


def reduced(secret: SecretStr | SecretBytes) -> tuple[Any, ...]:
    """How a secret is pickled: as a call of `reveal` with its name."""
    name = PREFIX + register(secret)
    return reveal, (name, True) if isinstance(secret.get_secret_value(), bytes) else (name,)


def reveal(name: str, binary: bool = False) -> SecretStr | SecretBytes:
    """The secret of a name; if it is `binary`, as bytes, though a terminal or a variable has given its value as text.

    Raises LoadError if this process doesn't know its value.
    """
    from pydantic import SecretBytes, SecretStr

    name = name.removeprefix(PREFIX)
    value = _values.get(name)
    match value:
        case str() if binary:
            return SecretBytes(value.encode())
        case str():
            return SecretStr(value)
        case bytes():
            return SecretBytes(value)
        case _:
            raise LoadError(
                f"the value of the secret {name!r} is not known in this process: a pipeline holds only the names of "
                "its secrets"
            )


def _add(name: str, value: SecretValue) -> None:
    _values[name] = value
    _names[value] = name
    conceal(value)
