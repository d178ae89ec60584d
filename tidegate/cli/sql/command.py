"""The command `tidegate sql`: its arguments, and what it does with a script."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tidegate.cli.sql.prompt import prompt
from tidegate.cli.sql.results import show_results

if TYPE_CHECKING:
    from tidegate.sdk.options.model import PipelineOptions
    from tidegate.sql.script import Script


@click.command("sql", context_settings={"ignore_unknown_options": True, "help_option_names": ["-h", "--help"]})
@click.argument("file", required=False, type=click.Path(path_type=Path))
@click.argument("flags", nargs=-1, type=click.UNPROCESSED, metavar="[FLAGS OF PIPELINES]")
@click.option("-e", "text", help="Statements, instead of a file.")
@click.option("--param", "params", multiple=True, metavar="NAME=VALUE", help="The value of :NAME in the statements.")
@click.option("--explain", "explaining", is_flag=True, help="Print the plan, and run nothing.")
@click.pass_context
def sql(
    ctx: click.Context,
    file: Path | None,
    flags: tuple[str, ...],
    text: str | None,
    params: tuple[str, ...],
    explaining: bool,
) -> None:
    """Run statements in SQL: a file's, those after -e, or at a prompt.

    Tables are files: `SELECT … FROM 'words.parquet'`, or `CREATE TABLE t (…) WITH ('path' = '…', 'format' = 'csv')`,
    into which INSERT INTO writes. FLAGS are those of all pipelines, such as --runner streaming.
    """
    if file is not None and str(file).startswith("-"):
        flags, file = (str(file), *flags), None
    if file is not None and text is not None:
        raise click.UsageError("give a file, or statements after -e, not both")
    if file is not None and not file.is_file():
        raise click.BadParameter(f"File {str(file)!r} does not exist.", param_hint="'[FILE]'")
    values: dict[str, Any] = {}
    for given in params:
        param, value = _param(given)
        if param in values:
            raise click.UsageError(f"--param gives {param} twice")
        values[param] = value
    if file is not None:
        execute(file.read_text(encoding="utf-8"), str(file), values, flags, explaining, ctx)
    elif text is not None:
        execute(text, "statement", values, flags, explaining, ctx)
    elif not explaining:
        prompt(values, flags)
    elif sys.stdin.isatty():
        raise click.UsageError("--explain takes a file, or statements after -e")
    else:
        execute(sys.stdin.read(), "statement", values, flags, explaining, ctx)


def _param(given: str) -> tuple[str, Any]:
    """A parameter. Numbers, true, false and null are values of these types; other texts are strings."""
    import json

    name, equals, value = given.partition("=")
    if not equals or not name.isidentifier():
        raise click.UsageError(f"--param takes NAME=VALUE, not {given!r}")
    try:
        found = json.loads(value)
    except ValueError:
        return name, value
    return name, found if isinstance(found, (bool, int, float, str)) or found is None else value


def execute(
    text: str, name: str, params: dict[str, Any], flags: Sequence[str], explaining: bool, ctx: click.Context
) -> None:
    """Run or explain a script of this name, and print the results of its queries."""
    from tidegate.cli.explain import explained
    from tidegate.cli.progress import run_with_progress
    from tidegate.cli.target import Built
    from tidegate.sdk.errors import SqlError
    from tidegate.sdk.options.model import PipelineOptions
    from tidegate.sdk.pipeline import Pipeline
    from tidegate.sdk.runner import PipelineState
    from tidegate.sql.script import Script

    made: list[Script] = []

    def build(options: PipelineOptions) -> Pipeline:
        pipeline = Pipeline(options=options, name="sql")
        made.append(Script(pipeline, params, name))
        made[0].add(text)
        unused = [name for name in params if name not in made[0].used_params]
        if unused:
            raise SqlError(f"the statements have no parameter :{unused[0]}")
        for table in made[0].unread():
            click.echo(f"warning: no statement reads the table {table}, or inserts into it", err=True)
        return pipeline

    found = Built("sql", PipelineOptions, "", build)
    options = found.options(flags)
    found.pipeline(options)
    if explaining:
        made[0].add_readers()
        click.echo(explained(found, options), nl=False)
        return
    script = made[0]
    if script.written:
        result = run_with_progress(found.runner(options), found.sealed(options), options)
        if result.state is PipelineState.FAILED:
            ctx.exit(1)
    show_results(script)
    if not script.results and not script.written:
        raise click.UsageError("the statements neither query a table nor insert into one")
