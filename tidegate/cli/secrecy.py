"""Leaves secret options out of a compiled file, and warns of options that are likely to be secrets.

An option of the type `SecretStr` or `SecretBytes` is a secret, and is not written. One of another type may be a secret
by its name or its value: it is written with a warning, because the pipeline may need it.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

import click

from tidegate.sdk.errors import BuildError, OptionsError, visible
from tidegate.sdk.options.flags import spelling
from tidegate.sdk.secrets.redaction import SHORTEST, redacted

if TYPE_CHECKING:
    from tidegate.sdk.options.model import PipelineOptions
    from tidegate.sdk.portable.model import Node, Pipeline

_NAMES: Final = re.compile(
    r"pass(word|wd|phrase)|pwd|secret|credential|(api|access|private|auth)[_.-]?(key|token)|token$|connection_string",
    re.IGNORECASE,
)


def secret_fields(options: PipelineOptions) -> set[str]:
    """The options with a secret, also as an item of a container or a field of a model."""
    return {name for name in type(options).model_fields if any(_secrets(getattr(options, name)))}


def check_secrets(pipeline: Pipeline, options: PipelineOptions) -> None:
    """Raise BuildError if the pipeline contains the value of a secret option, as in a variable that a function
    captures."""
    from tidegate.sdk.portable.code_parts import code_of
    from tidegate.sdk.portable.secrets import pickle_of

    for name in sorted(secret_fields(options)):
        for secret in _secrets(getattr(options, name)):
            if len(secret) < SHORTEST:
                continue
            for node in pipeline.nodes:
                in_code = any(secret in data for part in code_of(node) if (data := pickle_of(part)))
                if in_code or secret.decode(errors="replace") in _plain(node):
                    raise BuildError(
                        f"the file would contain the secret of {spelling(name)}, which is part of step {node.label!r}: "
                        "read the secret where the step runs, for example in setup() from the environment\n"
                        f"  applied at {node.where}"
                    )
            for part in code_of((pipeline.classes, pipeline.coders)):
                if (data := pickle_of(part)) and secret in data:
                    raise BuildError(
                        f"the file would contain the secret of {spelling(name)}, which is part of a class of the "
                        "script: read the secret from the environment where it is used"
                    )


def readable_secrets(options: tuple[tuple[str, str], ...]) -> Iterator[str]:
    """A warning for each option that is written to the file and looks like a secret."""
    for name, text in options:
        if _looks_secret(name, json.loads(text)):
            yield (
                f"{spelling(name)} looks like a secret, and is written in plain text: declare it as "
                "pydantic.SecretStr, which is not written, and read it where the pipeline runs"
            )


def ask_for_secrets(pipeline: Pipeline) -> None:
    """Register the values of a compiled pipeline's secrets, which its file doesn't contain.

    A value is read from the environment variable `TIDEGATE_SECRET_<NAME>` or, on a terminal, asked for. OptionsError
    if neither is possible.
    """
    from tidegate.sdk.portable.secrets import secret_names
    from tidegate.sdk.secrets.registry import install_secrets, values_of

    needed = secret_names(pipeline)
    for name, step in needed.items():
        if values_of([name]):
            continue
        variable = "TIDEGATE_SECRET_" + re.sub(r"\W", "_", name).upper()
        user = f", which step {visible(step)!r} uses" if step else ""
        value = os.environ.get(variable)
        if value is None and sys.stdin.isatty():
            value = click.prompt(f"The secret {name!r}{user}", hide_input=True, err=True)
        if value is None:
            raise OptionsError(
                f"the secret {name!r}{user}, is not in the compiled pipeline: set the environment variable {variable}, "
                "or run it on a terminal, which asks for it"
            )
        install_secrets({name: value})


def _looks_secret(name: str, value: Any) -> bool:
    match value:
        case str():
            return bool(value) and (_NAMES.search(name) is not None or redacted(value) != value)
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


def _plain(node: Node) -> str:
    """The text in a node: labels, names, and literals in its fields."""
    return repr(node)
