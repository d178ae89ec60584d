"""The secrets that a sealed pipeline refers to."""

from __future__ import annotations

from tidegate.sdk.portable.code_parts import code_of
from tidegate.sdk.portable.model import Pipeline
from tidegate.sdk.portable.values import Values
from tidegate.sdk.secrets.registry import SecretValue, names_in, values_of
from tidegate.sdk.user_code.user_fn import Payload, UserFn


def secret_names(pipeline: Pipeline) -> dict[str, str]:
    """The names of the pipeline's secrets; for each the label of the first step that refers to it, or "" for a class or
    a coder. Unpickles nothing."""
    found: dict[str, str] = {}
    for node in pipeline.nodes:
        for part in code_of(node):
            for name in names_in(pickle_of(part)):
                found.setdefault(name, node.label)
    for part in code_of((pipeline.collections, pipeline.classes, pipeline.coders)):
        for name in names_in(pickle_of(part)):
            found.setdefault(name, "")
    return found


def secrets_of(pipeline: Pipeline) -> dict[str, SecretValue]:
    """The values of the pipeline's secrets, as far as this process knows them."""
    return values_of(secret_names(pipeline))


def pickle_of(part: UserFn | Values) -> bytes:
    """The pickle of a function's code or of a `Create`'s values; b"" if there is none."""
    match part:
        case UserFn(code=Payload(data=data)):
            return data
        case Values(data=bytes(data)):
            return data
        case _:
            return b""
