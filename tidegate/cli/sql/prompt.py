"""The prompt of `tidegate sql`: statements up to their semicolons, with history and completion."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Final

import click

from tidegate.cli.sql.results import show_results

_WORDS: Final = (
    "SELECT FROM WHERE GROUP BY HAVING ORDER LIMIT JOIN LEFT ON AS AND OR NOT IN EXISTS BETWEEN LIKE CASE WHEN THEN "
    "ELSE END WITH UNION INTERSECT EXCEPT DISTINCT COUNT SUM AVG MIN MAX TABLE TUMBLE HOP CUMULATE SESSION DESCRIPTOR "
    "INTERVAL CREATE INSERT INTO WATERMARK FOR"
).split()


def prompt(params: dict[str, Any], flags: Sequence[str]) -> None:
    """Read statements, each up to its semicolon, and run them; tables that were created stay.

    Statements that are piped in end with the input, too, and one that fails makes the exit code 1.
    """
    from tidegate.sdk.errors import TidegateError
    from tidegate.sdk.options.model import PipelineOptions
    from tidegate.sdk.pipeline import Pipeline
    from tidegate.sql.script import Script

    options = PipelineOptions.from_args(flags)
    definitions: dict[str, Any] = {}
    failed = False
    _with_history(lambda: [*_WORDS, *definitions])
    for statement in _statements():
        script = Script(Pipeline(options=options, name="sql"), params, definitions=dict(definitions))
        try:
            script.add(statement)
            if script.written:
                script.pipeline.run().wait_until_finish()
            show_results(script)
        except (TidegateError, click.UsageError) as error:
            click.echo(f"error: {error}", err=True)
            failed = True
            continue
        except KeyboardInterrupt:
            if not sys.stdin.isatty():
                raise
            click.echo("interrupted", err=True)
            continue
        definitions = script.definitions
    if failed and not sys.stdin.isatty():
        raise SystemExit(1)


def _statements() -> Iterable[str]:
    """What is typed, statement by statement."""
    lines: list[str] = []
    shows_prompt = sys.stdin.isatty()
    while True:
        try:
            lines.append(input(("   ...> " if lines else "tidegate> ") if shows_prompt else ""))
        except EOFError:
            if not shows_prompt and "".join(lines).strip():
                yield "\n".join(lines)
            return
        except KeyboardInterrupt:
            lines.clear()
            click.echo()
            continue
        if shows_prompt and len(lines) == 1 and lines[0].strip().rstrip(";").lower() in ("exit", "quit"):
            return
        if not "".join(lines).strip():
            lines.clear()
        elif lines[-1].rstrip().endswith(";"):
            yield "\n".join(lines)
            lines.clear()


def _with_history(words: Any) -> None:
    """Let the prompt complete words, and remember what was typed, where Python has readline."""
    try:
        import readline
    except ImportError:
        return
    import atexit

    history = Path(click.get_app_dir("tidegate")) / "sql_history"
    with contextlib.suppress(OSError):
        readline.read_history_file(history)

    def complete(begun: str, at: int) -> str | None:
        found = [word for word in words() if word.lower().startswith(begun.lower())]
        return found[at] if at < len(found) else None

    def save() -> None:
        with contextlib.suppress(OSError):
            history.parent.mkdir(parents=True, exist_ok=True)
            readline.write_history_file(history)

    readline.set_completer(complete)
    readline.parse_and_bind("tab: complete")
    atexit.register(save)
