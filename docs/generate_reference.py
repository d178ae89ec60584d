"""Writes docs/reference.md: every public name with its signature and docstring. `make reference` runs it."""

from __future__ import annotations

import dataclasses
import enum
import inspect
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import tidegate
import tidegate.graph
import tidegate.testing
from tidegate.sdk.user_code.keywords import Keywords

HEAD = """\
# Reference

<!-- Written by `make reference`: change the docstrings, not this page. -->

Every public name, with its signature and what its docstring says. `help(tg.FixedWindows)` prints the same in the
interpreter. Times given as numbers are seconds; `Any` in a signature stands for the author's own types.
"""

GROUPS = {
    "Pipelines": ("sdk.pipeline", "sdk.steps", "sdk.runner", "sdk.options", "sdk.interactive"),
    "Steps": ("sdk.primitives", "transforms", "sdk.data.row"),
    "What steps are made of": (
        "sdk.authoring.dofn", "sdk.data.values", "sdk.metrics", "sdk.authoring.side_inputs", "sdk.data.coders",
    ),
    "Combining": ("sdk.authoring.combine",),
    "Time and windows": (
        "sdk.time", "sdk.windowing.assigners", "sdk.windowing.calendar", "sdk.windowing.presets",
        "sdk.windowing.window", "sdk.windowing.strategy",
    ),
    "Triggers, panes and evictors": ("sdk.windowing.triggers", "sdk.data.panes", "sdk.windowing.evictors"),
    "State and timers": ("sdk.authoring.state",),
    "Files": ("io",),
    "Expressions and SQL": ("sdk.relational", "sql"),
    "Errors": ("sdk.errors",),
}  # fmt: skip
"""The names of `tg` by the modules that define them, the most particular module first."""

CONSTANTS = {
    "ACCUMULATING": ("Time and windows", "Each pane of a window has all elements so far."),
    "DISCARDING": ("Time and windows", "Each pane of a window has the elements since the one before."),
    "MAX_TIMESTAMP": ("Time and windows", "The end of time: the watermark of input that has ended."),
    "MIN_TIMESTAMP": (
        "Time and windows",
        "The beginning of time: the timestamp of elements that nobody stamped.",
    ),
    "DurationOption": ("Pipelines", "The type of an option that is a duration: `500ms`, `10s`, a number of seconds."),
    "SizeOption": ("Pipelines", "The type of an option that is a number of bytes: `512k`, `256MB`."),
    "Position": ("tg.io", "Where in its split a reader is: None, or a small value that JSON can hold."),
    "Delivery": ("tg.io", 'What a sink promises: `"exactly_once"` or `"at_least_once"`.'),
    "ANY": ("tidegate.testing", "Equals everything, in what is expected of a test."),
}
"""What docstrings can't say: values and types."""


MADE_OTHERWISE = {"PCollection", "PipelineOptions"}
"""Classes that authors do not make by their constructor, or not by one that can be read."""


def page() -> str:
    """The whole page."""
    sections: dict[str, list[str]] = {group: [] for group in GROUPS}
    for name in sorted(set(tidegate.__all__) - {"io", "fn", "combiners", "__version__"}, key=str.lower):
        group = CONSTANTS[name][0] if name in CONSTANTS else _group(getattr(tidegate, name))
        sections[group].append(_entry("tg", name, getattr(tidegate, name)))
    for prefix, module in (
        ("tg.fn", tidegate.fn),
        ("tg.combiners", tidegate.combiners),
        ("tg.io", tidegate.io),
        ("graph", tidegate.graph),
        ("testing", tidegate.testing),
    ):
        title = f"tidegate.{prefix}" if prefix in ("graph", "testing") else prefix
        sections[title] = [
            _entry(prefix, name, getattr(module, name)) for name in sorted(module.__all__, key=str.lower)
        ]
    parts = [HEAD]
    for title, entries in sections.items():
        heading = f"`{title}`" if "." in title else title
        parts.append(f"## {heading}\n\n" + "\n".join(entries))
    return "\n".join(parts)


def _group(value: Any) -> str:
    module = value.__module__.removeprefix("tidegate.") + "."
    for group, places in GROUPS.items():
        if any(module.startswith(f"{place}.") for place in places):
            return group
    raise SystemExit(f"{value.__name__} is defined in {value.__module__}: GROUPS says nothing of it")


def _entry(prefix: str, name: str, value: Any) -> str:
    """One name: a heading, how it is called, what it is, and for a class its members."""
    lines = [f"### `{prefix}.{name}`", ""]
    if name in CONSTANTS:
        return "\n".join([*lines, CONSTANTS[name][1], ""])
    if signature := _signature(value):
        lines += [f"```text\n{name}{signature}\n```", ""]
    lines += [_prose(inspect.getdoc(value) if not _inherits_doc(value) else None), ""]
    if inspect.isclass(value):
        members = [*_members(value)]
        lines += [*members, ""] if members else []
    return "\n".join(lines)


def _inherits_doc(value: Any) -> bool:
    return inspect.isclass(value) and not vars(value).get("__doc__")


def _signature(value: Any) -> str:
    """How something is called; "" for what is not for authors to call, or takes what its base takes."""
    if inspect.isclass(value) and (issubclass(value, (enum.Enum, BaseException)) or value.__name__ in MADE_OTHERWISE):
        return ""
    called = value
    if inspect.isclass(value) and not dataclasses.is_dataclass(value):
        made = [cls for cls in value.__mro__ if {"__init__", "__new__"} & vars(cls).keys()]
        if not made or made[0] in (object, Keywords) or not made[0].__module__.startswith("tidegate."):
            return ""
    try:
        return _readable(inspect.signature(called))
    except (TypeError, ValueError):
        return ""


def _readable(signature: inspect.Signature) -> str:
    """A signature as authors read it: annotations by their short names, and no addresses."""
    text = str(signature).replace("'", "") if "'" in str(signature.return_annotation) else str(signature)
    for parameter in signature.parameters.values():
        if isinstance(parameter.annotation, str):
            text = text.replace(f"'{parameter.annotation}'", parameter.annotation)
    if isinstance(signature.return_annotation, str):
        quoted = f"-> '{signature.return_annotation}'"
        text = text.replace(quoted, quoted.replace("'", ""))
    text = re.sub(r"<(\w+\.\w+): [^>]*>", r"\1", text)  # members of an enum
    text = re.sub(r"\"(\w+\[[^\"]*\])\"", r"\1", text)  # annotations that are written as text
    text = re.sub(r"<(?:function|class|object|built-in function) ?'?([\w.]*)[^>]*>", r"\1", text)
    text = re.sub(r"\b(?:[a-z_]\w*\.)+([A-Z]\w*)", r"\1", text)
    text = text.removesuffix(" -> None").replace("~", "")
    if len(text) <= 100:
        return text
    arguments = ",\n    ".join(_top_level(text[1 : text.rindex(")")]))
    return f"(\n    {arguments},\n){text[text.rindex(')') + 1 :]}"


def _top_level(arguments: str) -> Iterator[str]:
    """The arguments of a signature: parts between commas that are in no bracket and no text."""
    depth = start = 0
    quoted = False
    for at, letter in enumerate(arguments):
        quoted ^= letter == "'"
        depth += (letter in "([{") - (letter in ")]}")
        if letter == "," and not depth and not quoted:
            yield arguments[start:at].strip()
            start = at + 1
    yield arguments[start:].strip()


def _members(value: type) -> Iterator[str]:
    """A list item for each public method and property that the class itself documents."""
    if issubclass(value, enum.Enum):
        for member in value:
            yield f"- `{member.name}`"
        return
    for name, found in _own_and_inherited(value).items():
        if name.startswith("_"):
            continue
        inner: Any = found.__func__ if isinstance(found, (staticmethod, classmethod)) else found
        doc = inspect.getdoc(inner) if isinstance(inner, property) or inspect.isfunction(inner) else None
        if not doc:
            continue
        summary = _prose(doc.partition("\n\n")[0].replace("\n", " "))
        yield f"- `{name}{_call(inner, bound=not isinstance(found, staticmethod))}`: {summary}"


def _own_and_inherited(value: type) -> dict[str, Any]:
    """The attributes of a class, and of those in its package that have no entry of their own: the parts of a Graph."""
    parts = [part for part in value.__mro__ if part is value or part.__module__.startswith("tidegate.graph.")]
    return {name: found for part in reversed(parts) for name, found in vars(part).items()}


def _call(function: Callable[..., Any] | property, *, bound: bool) -> str:
    """`(a, b=…)` of a method; "" of a property."""
    if isinstance(function, property):
        return ""
    shown = []
    for parameter in list(inspect.signature(function).parameters.values())[bound:]:
        mark = {parameter.VAR_POSITIONAL: "*", parameter.VAR_KEYWORD: "**"}.get(parameter.kind, "")
        shown.append(f"{mark}{parameter.name}" + ("=…" if parameter.default is not parameter.empty else ""))
    return f"({', '.join(shown)})"


def _prose(doc: str | None) -> str:
    """A docstring as Markdown: its indented examples fenced."""
    if not doc:
        return "See its base class."
    blocks = []
    for block in doc.split("\n\n"):
        lines = block.splitlines()
        if lines and all(line.startswith("    ") for line in lines):
            blocks.append("```text\n" + "\n".join(line[4:] for line in lines) + "\n```")
        else:
            blocks.append(block)
    return "\n\n".join(blocks).replace("\n```\n\n```text\n", "\n\n")


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(page(), encoding="utf-8")
