"""Preparing a process for a compiled pipeline: checking that its code can run, and installing classes and coders."""

from __future__ import annotations

from tidegate.sdk.errors import LoadError
from tidegate.sdk.portable.code_parts import code_of
from tidegate.sdk.portable.model import Pipeline
from tidegate.sdk.portable.seal import this_environment
from tidegate.sdk.portable.values import Values
from tidegate.sdk.user_code.sealing import install_classes
from tidegate.sdk.user_code.user_fn import Payload, UserFn


def install_code(pipeline: Pipeline, source_name: str = "the pipeline") -> list[str]:
    """Install the by-value classes and the coders of a compiled pipeline in this process; return warnings.

    Raises LoadError if its code was pickled by value on another minor version of Python, whose bytecode is
    incompatible. Other versions of distributions cause a warning.
    """
    warnings = check_environment(pipeline, source_name)
    install_classes(pipeline.classes)
    if pipeline.coders:
        from tidegate.sdk.data import coders

        coders.install(tuple((cls.load(), coder.load()) for cls, coder in pipeline.coders))
    return warnings


def check_environment(pipeline: Pipeline, source_name: str = "the pipeline") -> list[str]:
    """The checks of `install_code`, which unpickle nothing."""
    here, there = this_environment(), pipeline.environment
    if here.python != there.python:
        for node in pipeline.nodes:
            for part in code_of(node):
                if _has_bytecode(part):
                    raise LoadError(
                        f"{source_name} was compiled on Python {there.python}, but this is Python {here.python}: step "
                        f"{node.label!r} has code pickled by value, which runs only on the version that compiled it. "
                        f"Compile it again here, or run it on Python {there.python}"
                    )
    from importlib import metadata

    warnings = []
    if there.tidegate != here.tidegate:
        warnings.append(f"compiled with Tidegate {there.tidegate}; this is {here.tidegate}")
    for name, version in there.distributions:
        try:
            found = metadata.version(name)
        except metadata.PackageNotFoundError:
            warnings.append(f"compiled with {name} {version}, which is not installed here")
            continue
        if found != version:
            warnings.append(f"compiled with {name} {version}; installed here is {found}")
    return warnings


def _has_bytecode(part: UserFn | Values) -> bool:
    """Whether a pickle defines functions or classes, rather than naming them: it then calls functions of
    cloudpickle."""
    match part:
        case UserFn(code=Payload(data=bytes(data))) | Values(data=bytes(data)):
            return b"cloudpickle.cloudpickle" in data
        case _:
            return False
