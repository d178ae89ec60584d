"""Secrets among the options of a pipeline that is compiled: kept out of the file, or warned of.

An option of the type `SecretStr` or `SecretBytes` is a secret. A plain one may be, by its name or by what it holds:
that is written, as the pipeline may need it, and anyone who can read the file can read it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

from tidegate.sdk.errors import BuildError
from tidegate.sdk.options.flags import spelling

if TYPE_CHECKING:
    from tidegate.sdk.options.model import PipelineOptions
    from tidegate.sdk.portable.model import Node, Pipeline

SHORTEST: Final = 4
"""Characters: what is shorter is found anywhere by chance."""

_NAMES: Final = re.compile(
    r"pass(word|wd|phrase)|pwd|secret|credential|(api|access|private|auth)[_.-]?(key|token)|token$|connection_string",
    re.IGNORECASE,
)
_IN_URL: Final = re.compile(r"://[^/\s:@]*:[^/\s@]+@")


def secret_fields(options: PipelineOptions) -> set[str]:
    """The options that hold a secret, also one among other things."""
    return {name for name in type(options).model_fields if any(_secrets(getattr(options, name)))}


def check_secrets(pipeline: Pipeline, options: PipelineOptions) -> None:
    """BuildError if a secret option is in what a pipeline is made of, such as a variable that a function captures."""
    from tidegate.sdk.portable.model import code_of

    for name in sorted(secret_fields(options)):
        for secret in _secrets(getattr(options, name)):
            if len(secret) < SHORTEST:
                continue
            for node in pipeline.nodes:
                held = any(secret in data for part in code_of(node) if (data := _bytes_of(part)))
                if held or secret.decode(errors="replace") in _plain(node):
                    raise BuildError(
                        f"the secret of {spelling(name)} would be written, as step {node.label!r} holds it: have the "
                        "step read it where it runs, in setup() from the environment for example\n"
                        f"  applied at {node.where}"
                    )
            for part in code_of((pipeline.classes, pipeline.coders)):
                if (data := _bytes_of(part)) and secret in data:
                    raise BuildError(
                        f"the secret of {spelling(name)} would be written, as a class of the script holds it: read it "
                        "from the environment where it is needed"
                    )


def readable_secrets(options: tuple[tuple[str, str], ...]) -> Iterator[str]:
    """A warning for each option, as it is written, that looks as if it were a secret."""
    for name, text in options:
        if _looks_secret(name, json.loads(text)):
            yield (
                f"{spelling(name)} looks like a secret, and is written as it is: declare it as pydantic.SecretStr, "
                "which is left out, and read it where the pipeline runs"
            )


def _looks_secret(name: str, value: Any) -> bool:
    match value:
        case str():
            return bool(value) and (_NAMES.search(name) is not None or _IN_URL.search(value) is not None)
        case dict():
            return any(_looks_secret(str(key), part) or _looks_secret(name, part) for key, part in value.items())
        case list():
            return any(_looks_secret(name, part) for part in value)
    return False


def _secrets(value: Any) -> Iterator[bytes]:
    from pydantic import BaseModel, SecretBytes, SecretStr

    match value:
        case SecretStr():
            yield value.get_secret_value().encode(errors="surrogatepass")
        case SecretBytes():
            yield value.get_secret_value()
        case BaseModel():
            for name in type(value).model_fields:
                yield from _secrets(getattr(value, name))
        case Mapping():
            for key, part in value.items():
                yield from _secrets(key)
                yield from _secrets(part)
        case list() | tuple() | set() | frozenset():
            for part in value:
                yield from _secrets(part)


def _bytes_of(part: Any) -> bytes:
    """A function's code or a `Create`'s values, as far as they travel by value."""
    data = getattr(part, "data", None) or getattr(getattr(part, "code", None), "data", None)
    return data if isinstance(data, bytes) else b""


def _plain(node: Node) -> str:
    """The plain text in a node: labels, names, literals of its fields."""
    return repr(node)
