"""The `tidegate` command: run, draw, check and compile pipelines, manage sessions, and examine this machine.

A TARGET is `file.py[:name]`, `package.module[:name]` or a compiled `pipeline.json`; `name` is a Pipeline, or a function
`pipeline(options: MyOptions) -> Pipeline`, whose options are the command's flags. Exit codes: 0 done, 1 the pipeline
failed, 2 misuse, 130 interrupted by Ctrl-C, 143 ended by SIGTERM.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from tidegate._version import __version__
from tidegate.cli.cluster import cluster
from tidegate.cli.jobs import jobs
from tidegate.cli.sql.command import sql
from tidegate.cli.state import state
from tidegate.sdk.errors import counted

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    from tidegate.cli.target import Target
    from tidegate.sdk.options.model import PipelineOptions
    from tidegate.sdk.portable.model import Pipeline

_IMAGES: Final = (".png", ".jpg", ".jpeg", ".gif", ".webp", ".pdf")

F = TypeVar("F", bound=Callable[..., Any])

_FORMATS: Final = {"mermaid": ".mmd", "dot": ".dot", "svg": ".svg", "html": ".html", "json": ".json"}


class _Commands(click.Group):
    """Reports the errors of commands in the author's terms, and exits with the matching code."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except (click.ClickException, click.exceptions.Exit, click.Abort, BrokenPipeError):
            raise
        except KeyboardInterrupt as error:
            from tidegate.cli.ending import INTERRUPTED, Interrupted

            click.echo("\n".join(error.lines) if isinstance(error, Interrupted) else "Aborted!", err=True)
            ctx.exit(INTERRUPTED)
        except Exception as error:
            from tidegate.cli.blame import is_misuse, report
            from tidegate.sdk.options.script import discard_stdout, reader_is_gone

            if isinstance(error.__cause__, BrokenPipeError) and reader_is_gone():
                discard_stdout()  # as in `tidegate run … | head`, which is no failure to report
                ctx.exit(1)
            click.echo(report(error, debug=bool(ctx.meta.get(_DEBUG))), err=True)
            ctx.exit(2 if is_misuse(error) else 1)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError:
            first = args[0]
            suggestion = f"--{first}" if first in ("help", "version") else ""
            if first.partition(":")[0].endswith((".py", ".json")):
                suggestion = f"run {first}"
            if not suggestion:
                raise
            raise click.UsageError(
                f"No such command {first!r}. Did you mean `{ctx.command_path} {suggestion}`?"
            ) from None


_DEBUG: Final = "tidegate.debug"


def _note_debug(ctx: click.Context, _: click.Parameter, value: bool) -> None:
    if value:
        ctx.meta[_DEBUG] = True


def _debug(command: F) -> F:
    option = click.option(
        "--debug", is_flag=True, expose_value=False, callback=_note_debug, help="Show Tidegate's own frames in errors."
    )
    return option(command)


def _takes_target(command: F) -> F:
    """Adds the argument TARGET, and after it the flags that the target declares, which only the target can parse."""
    command = click.argument(
        "flags", nargs=-1, type=click.UNPROCESSED, metavar="[FLAGS OF TARGET]", shell_complete=_file
    )(command)
    return _debug(click.argument("target", required=False, metavar="TARGET", shell_complete=_file)(command))


def _file(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Let the shell complete the name of a file, as a target or as a flag's value."""
    from click.shell_completion import CompletionItem

    return [CompletionItem(incomplete, type="file")]


_PASSES_FLAGS: Final = {"ignore_unknown_options": True, "allow_extra_args": True, "help_option_names": []}


@click.group(cls=_Commands, help=__doc__, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="tidegate")
def app() -> None:
    pass


app.add_command(cluster)
app.add_command(jobs)
app.add_command(sql)
app.add_command(state)


def main() -> None:
    """The entry point of the `tidegate` command."""
    app(prog_name="tidegate")


@app.command(context_settings=_PASSES_FLAGS)
@_takes_target
@click.pass_context
def run(ctx: click.Context, target: str | None, flags: tuple[str, ...]) -> None:
    """Run TARGET. `tidegate run TARGET --help` lists its flags."""
    from tidegate.cli.ending import ending_at_sigterm

    with ending_at_sigterm():
        _run(ctx, target, flags)


def _run(ctx: click.Context, target: str | None, flags: tuple[str, ...]) -> None:
    from tidegate.cli.ending import Interrupted
    from tidegate.cli.progress import run_with_progress
    from tidegate.sdk.portable.seal import interrupt_message
    from tidegate.sdk.runner import PipelineState

    def act(found: Target, options: PipelineOptions) -> None:
        for warning in found.prepare():
            click.echo(f"warning: {found.name} was {warning}", err=True)
        pipeline = found.sealed(options)
        try:
            result = run_with_progress(found.runner(options), pipeline, options)
        except KeyboardInterrupt as error:
            raise Interrupted(*interrupt_message(pipeline)) from error
        found.record_run(result)
        if result.state is PipelineState.FAILED:
            click.echo("error: the pipeline failed", err=True)
            ctx.exit(1)

    _with_opened(ctx, target, flags, act)


@app.command(context_settings=_PASSES_FLAGS)
@_takes_target
@click.option(
    "--format", "form", type=click.Choice(list(_FORMATS)), help="By default that of FILE's suffix, or mermaid."
)
@click.option("-o", "output", type=click.Path(dir_okay=False, path_type=Path), help="Write to FILE, not to stdout.")
@click.option("--plan", "planned", is_flag=True, help="Draw the plan of the chosen --runner (html always shows both).")
@click.pass_context
def graph(
    ctx: click.Context, target: str | None, flags: tuple[str, ...], form: str | None, output: Path | None, planned: bool
) -> None:
    """Draw TARGET: composites, or with --plan its stages, regions and exchanges."""
    by_suffix = {suffix: name for name, suffix in _FORMATS.items()}
    suffix = output.suffix.lower() if output else ""
    if form is None and suffix in _IMAGES:
        raise click.UsageError(f"graph can't write {suffix} files: write {output.with_suffix('.svg')}")  # type: ignore[union-attr]
    chosen = form or by_suffix.get(suffix, "mermaid")
    _with_opened(ctx, target, flags, lambda found, options: _write(_picture(found, options, chosen, planned), output))


def _picture(found: Target, options: PipelineOptions, form: str, planned: bool) -> str:
    from tidegate.runners.planner.explain import graph_of_plan
    from tidegate.sdk.drawing import graph
    from tidegate.sdk.errors import BuildError

    if form == "json":
        return _compiled(found, options)
    pipeline = found.live(options)
    if form == "html":
        from tidegate.sdk.drawing.html import html

        views = {"Pipeline": graph.graph_of(pipeline)}
        try:
            views["Plan"] = graph_of_plan(found.runner(options).plan(pipeline, options))
        except BuildError as error:
            click.echo(f"warning: the page shows no plan, because the pipeline can't be planned: {error}", err=True)
        return html(views)
    drawn = graph_of_plan(found.runner(options).plan(pipeline, options)) if planned else graph.graph_of(pipeline)
    match form:
        case "svg":
            from tidegate.sdk.drawing.svg import svg

            return svg(drawn)
        case "dot":
            return graph.dot(drawn)
        case _:
            return graph.mermaid(drawn)


@app.command(context_settings=_PASSES_FLAGS)
@_takes_target
@click.option("--verbose", is_flag=True, help="Say of each function whether it is inlined, or called and why.")
@click.pass_context
def explain(ctx: click.Context, target: str | None, flags: tuple[str, ...], verbose: bool) -> None:
    """Print the plan of TARGET for a --runner: stages, exchanges, and the reasons for them."""
    from tidegate.cli.explain import explained

    _with_opened(
        ctx, target, flags, lambda found, options: click.echo(explained(found, options, verbose=verbose), nl=False)
    )


@app.command(context_settings=_PASSES_FLAGS)
@_takes_target
@click.option(
    "-o",
    "output",
    type=click.Path(dir_okay=False, path_type=Path, allow_dash=True),
    help="Write to FILE, or to stdout if it is -.  [required]",
)
@click.pass_context
def compile(ctx: click.Context, target: str | None, flags: tuple[str, ...], output: Path | None) -> None:
    """Write TARGET as JSON, so that it can be run, drawn or explained elsewhere."""

    def act(found: Target, options: PipelineOptions) -> None:
        if output is None:  # not checked earlier, so that --help works without it
            raise click.UsageError("-o FILE is missing: the file to write to")
        _write(_compiled(found, options), None if str(output) == "-" else output)

    if output is None and flags and flags[0].endswith(".json"):
        raise click.UsageError(f"-o is missing before the file to write to: -o {flags[0]}")
    _with_opened(ctx, target, flags, act)


@app.command(context_settings=_PASSES_FLAGS)
@_takes_target
@click.pass_context
def check(ctx: click.Context, target: str | None, flags: tuple[str, ...]) -> None:
    """Build TARGET, and check whether the chosen --runner can run it, without running it."""
    _with_opened(ctx, target, flags, _check)


def _check(found: Target, options: PipelineOptions) -> None:
    from tidegate.runners.planner.explain import left_out, warnings

    pipeline, runner = found.sealed(options), found.runner(options)
    plan = runner.plan(pipeline, options)
    found_warnings = [*runner.check(pipeline, options), *warnings(plan), *left_out(pipeline, plan)]
    for warning in dict.fromkeys(found_warnings):
        click.echo(f"warning: {warning}", err=True)
    steps = counted(len(pipeline.nodes), "step")
    click.echo(f"ok: {pipeline.name!r} has {steps}, and the {options.runner} runner can run it")


@app.command(context_settings=_PASSES_FLAGS)
@_takes_target
@click.option(
    "-o",
    "output",
    default=Path("trace.html"),
    show_default=True,
    type=click.Path(dir_okay=False, path_type=Path, allow_dash=True),
    help="Write the page to FILE.",
)
@click.pass_context
def trace(ctx: click.Context, target: str | None, flags: tuple[str, ...], output: Path) -> None:
    """Run TARGET on the direct runner and draw what its windows did: elements, watermark, panes, late data.

    An unbounded run is drawn after --run_for, or at Ctrl-C; a run that fails, up to its failure.
    """
    _with_opened(ctx, target, flags, lambda found, options: _trace(found, options, output))


def _trace(found: Target, options: PipelineOptions, output: Path) -> None:
    from tidegate.cli.tracing import run_traced, summary

    if options.runner != "direct":
        click.echo(f"warning: traced on the direct runner, not on {options.runner}", err=True)
    for warning in found.prepare():
        click.echo(f"warning: {found.name} was {warning}", err=True)
    seen, error = run_traced(found, options)
    _write(seen.html(), None if str(output) == "-" else output)
    click.echo("\n".join(summary(seen)), err=True)
    if error is not None:
        raise error


@app.command()
@click.argument("requirements", nargs=-1, metavar="[PACKAGES]")
@click.option(
    "-o",
    "output",
    default=Path("environment.tar.gz"),
    show_default=True,
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write the archive to FILE.",
)
@_debug
def package(requirements: tuple[str, ...], output: Path) -> None:
    """Pack this virtual environment, or PACKAGES of it, for workers of a Spark cluster (--spark_archive)."""
    from tidegate.cli.package import package as pack

    for line in pack(output, requirements):
        click.echo(line, err=True)


@app.command()
@_debug
def runners() -> None:
    """List the installed runners."""
    from tidegate.cli.doctor import runner_lines

    click.echo("\n".join(runner_lines()))


@app.command()
@_debug
def doctor() -> None:
    """Examine this machine: versions, Java, memory, runners, and what to install to use more of Tidegate."""
    from tidegate.cli.doctor import examine

    click.echo("\n".join(examine()))


def _with_opened(
    ctx: click.Context,
    target: str | None,
    flags: tuple[str, ...],
    act: Callable[[Target, PipelineOptions], None],
) -> None:
    """Call `act` with the target and its options. Prints help and exits for `--help`, or without a target."""
    if target in (None, "--help", "-h"):
        click.echo(ctx.get_help())
        ctx.exit(0 if target else 2)
    from tidegate.cli.loading import with_target

    assert target is not None
    if target.startswith("-"):
        raise click.UsageError(f"TARGET comes before its flags: {ctx.command_path} TARGET {target} …")

    def found(found: Target) -> None:
        if "--help" in flags or "-h" in flags:
            click.echo(f"Usage: {ctx.command_path} {target} [FLAGS]\n")
            if found.about:
                click.echo(f"{found.about}\n")
        act(found, found.options(flags))

    with_target(target, flags, found)


def _compiled(found: Target, options: PipelineOptions) -> str:
    from dataclasses import replace

    from tidegate.cli.secrecy import check_secrets, readable_secrets
    from tidegate.sdk.portable.json import dump

    pipeline: Pipeline = replace(found.sealed(options, values=True), options=found.stored_flags(options))
    check_secrets(pipeline, options)
    for warning in readable_secrets(pipeline.options):
        click.echo(f"warning: {warning}", err=True)
    return dump(pipeline)


def _write(text: str, output: Path | None) -> None:
    if output is None:
        click.echo(text, nl=False)
        return
    # To another name first, so that a failure while writing doesn't damage an existing file.
    part = output.with_name(output.name + ".part")
    try:
        part.write_text(text, encoding="utf-8")
        part.replace(output)
    except OSError as error:
        raise click.ClickException(f"can't write {output}: {error.strerror}") from None
    click.echo(f"wrote {output}", err=True)
