"""The `tidegate` command: targets, flags, exit codes and error messages."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from tidegate.cli import app

ROOT = Path(__file__).parents[2]
TIDEGATE_CODE = f"{ROOT / 'tidegate'}{os.sep}"
"""The folder of Tidegate's own code, whatever this clone and the folders above it are called."""

JOB = '''\
"""A job for tests."""
import dataclasses
import sys

import tidegate as tg
from tidegate.sdk.options.model import PipelineOptions


@dataclasses.dataclass(frozen=True)
class Point:
    x: int


class JobOptions(PipelineOptions):
    count: int = 3
    output: str = ""
    bad: bool = False


class Twice(tg.PTransform):
    def expand(self, points):
        return points | tg.Map(lambda point: (point, 1)) | tg.CombinePerKey(sum)


def divide(pair):
    return 10 // (pair[0].x - 1)


def pipeline(options: JobOptions) -> tg.Pipeline:
    """Counts points."""
    p = tg.Pipeline(name="points")
    counted = p | tg.Create(range(options.count)) | tg.Map(lambda n: Point(n % 2)) | Twice()
    if options.bad:
        counted = counted | "divide" >> tg.Map(divide)
    counted | tg.Map(print)
    return p


ready = tg.Pipeline(name="ready")
ready | tg.Create(["argv"]) | tg.Map(lambda word: print(word, *sys.argv[1:]))

number = 7

if __name__ == "__main__":
    print("the main block ran")
    pipeline(JobOptions.from_args()).run()
'''


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    (tmp_path / "job.py").write_text(JOB)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["tidegate"])
    monkeypatch.setattr(sys, "path", list(sys.path))
    before = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - before:
        if name.startswith("__main__.") or name in ("job", "package", "package.inner"):
            del sys.modules[name]


def tidegate(*args: str) -> Result:
    return CliRunner().invoke(app, args, prog_name="tidegate")


def process(folder: Path, *args: str, script: str | None = None) -> subprocess.CompletedProcess[str]:
    """Run the command, or a script, in a process of its own."""
    command = [script] if script else ["-c", "from tidegate.cli import main; main()"]
    return subprocess.run(
        [sys.executable, *command, *args],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )


# --- run, in real processes ----------------------------------------------------------------------------------------


def test_run_runs_a_function_with_its_own_flags(folder: Path) -> None:
    done = process(folder, "run", "job.py", "--count", "5")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "(Point(x=0), 3)\n(Point(x=1), 2)\n"


def test_a_script_that_parses_its_own_arguments_runs_once(folder: Path) -> None:
    done = process(folder, "--count", "5", "--runner", "direct", script="job.py")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "the main block ran\n(Point(x=0), 3)\n(Point(x=1), 2)\n"


def test_a_compiled_pipeline_has_the_same_output_as_its_script(folder: Path) -> None:
    compiled = process(folder, "compile", "job.py", "--count", "5", "-o", "pipeline.json")
    assert (compiled.returncode, compiled.stdout, compiled.stderr) == (0, "", "wrote pipeline.json\n")
    (folder / "job.py").unlink()
    done = process(folder, "run", "pipeline.json", "--checks", "all")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "(Point(x=0), 3)\n(Point(x=1), 2)\n"


def test_a_failing_function_ends_the_command_with_code_1_and_the_frames_of_the_author(folder: Path) -> None:
    done = process(folder, "run", "job.py", "--bad")
    assert done.returncode == 1
    lines = done.stderr.splitlines()
    line = JOB.splitlines().index('        counted = counted | "divide" >> tg.Map(divide)') + 1
    where = JOB.splitlines().index("    return 10 // (pair[0].x - 1)") + 1
    assert lines[0] == "error: ZeroDivisionError: integer division or modulo by zero"
    assert lines[1] == f"  in step 'divide', applied at {folder / 'job.py'}:{line}"
    assert lines[2] == "  element: (Point(x=1), 1)"
    assert lines[3] == "in your code, the innermost call last:"
    assert lines[4] == f'  File "{folder / "job.py"}", line {where}, in divide'
    assert TIDEGATE_CODE not in done.stderr
    assert len(lines) < 25


def test_debug_shows_tidegates_frames(folder: Path) -> None:
    done = process(folder, "run", "job.py", "--bad", "--debug")
    assert done.returncode == 1
    assert "Traceback (most recent call last):" in done.stderr
    assert f"{TIDEGATE_CODE}cli{os.sep}__init__.py" in done.stderr


def test_misuse_gives_exit_code_2(folder: Path) -> None:
    for args in (
        ("run", "job.py", "--cuont", "5"),
        ("run", "nowhere.py"),
        ("run", "job.py", "--runner", "moon"),
        ("run",),
        ("rnu", "job.py"),
    ):
        done = process(folder, *args)
        assert done.returncode == 2, args
        assert "Traceback" not in done.stderr


def test_nothing_but_the_output_is_printed_without_a_terminal(folder: Path) -> None:
    done = process(folder, "run", "job.py", "--progress", "auto")
    assert done.stderr == ""


def test_the_package_run_as_a_module_is_the_command(folder: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tidegate", "run", "job.py", "--count", "1"],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "(Point(x=0), 1)\n", "")


def test_a_closed_pipe_is_no_error(folder: Path) -> None:
    done = subprocess.run(
        f"{sys.executable} -c 'from tidegate.cli import main; main()' graph job.py --format html | head -c 10",
        shell=True,
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.stdout, done.stderr) == ("<!doctype ", "")


# --- targets -------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("folder")
def test_a_pipeline_object_is_a_target_and_its_script_sees_the_flags() -> None:
    done = tidegate("run", "job.py:ready", "--checks", "off")
    assert done.exit_code == 0, done.output
    assert done.stdout == "argv --checks off\n"


def test_a_module_is_a_target(folder: Path) -> None:
    (folder / "package").mkdir()
    (folder / "package" / "__init__.py").touch()
    (folder / "package" / "inner.py").write_text(JOB)
    done = tidegate("run", "package.inner:pipeline", "--count", "1")
    assert (done.exit_code, done.stdout) == (0, "(Point(x=0), 1)\n"), done.output


@pytest.mark.usefixtures("folder")
def test_the_only_pipeline_of_a_script_is_its_target_under_any_name() -> None:
    script = "import tidegate as tg\np = tg.Pipeline()\np | tg.Create([1]) | tg.Map(print)\n"
    Path("one.py").write_text(script)
    Path("two.py").write_text(script + script.replace("p =", "q =").replace("p |", "q |"))
    one = tidegate("run", "one.py")
    assert (one.exit_code, one.stdout) == (0, "1\n"), one.output
    two = tidegate("run", "two.py")
    assert two.exit_code == 2
    assert "two.py has no 'pipeline'; it has p, q: write two.py:p." in two.stderr
    assert "one.py has no 'q'; it has p: write one.py:p." in tidegate("run", "one.py:q").stderr


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("jbo.py", "there is no file jbo.py; did you mean job.py?"),
        ("job.py:ghost", "job.py has no 'ghost'; it has pipeline, ready: write job.py:pipeline."),
        ("job.py:number", "job.py:number is int, not a Pipeline or a function that returns one"),
        ("job.py:Point", "job.py:Point is type, not a Pipeline or a function that returns one"),
        ("no.such.module", "there is no module no here, and no file of that name"),
        ("job.txt/x", "there is no file job.txt/x"),
        ("..", ".. is a folder: a target is a file.py, a package.module, or a pipeline.json"),
        ("pipeline.json:ready", "pipeline.json contains one pipeline, without a name: leave out :ready"),
        ("--count", "TARGET comes before its flags: tidegate run TARGET --count …"),
        ("pipeline.json", "there is no file pipeline.json"),
        ("data", "data is a folder: a target is a file.py, a package.module, or a pipeline.json"),
        ("empty.py", "empty.py has no 'pipeline'. A target is a Pipeline, or a function that returns one"),
        ("job.ipynb", "there is no file job.ipynb, and job is not a package with modules: a target is a file.py, a "),
    ],
)
def test_an_invalid_target_is_refused_with_the_reason(target: str, message: str) -> None:
    Path("data").mkdir()
    Path("empty.py").touch()
    done = tidegate("run", target)
    assert done.exit_code == 2
    assert f"Error: {message}" in done.stderr
    assert done.stdout == ""


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["job.py", "--count", "2"], "No such command 'job.py'. Did you mean `tidegate run job.py`?"),
        (["job.py:ready"], "No such command 'job.py:ready'. Did you mean `tidegate run job.py:ready`?"),
        (["pipeline.json"], "No such command 'pipeline.json'. Did you mean `tidegate run pipeline.json`?"),
        (["help", "run"], "No such command 'help'. Did you mean `tidegate --help`?"),
        (["version"], "No such command 'version'. Did you mean `tidegate --version`?"),
        (["explian", "job.py"], "No such command 'explian'. Did you mean 'explain'?"),
        (["graph", "job.py", "-o", "job.png"], "graph can't write .png files: write job.svg"),
        (["compile", "job.py", "job.json"], "-o is missing before the file to write to: -o job.json"),
        (["compile", "job.py"], "-o FILE is missing: the file to write to"),
    ],
)
def test_misplaced_arguments_are_refused_with_a_correction(words: list[str], message: str) -> None:
    done = tidegate(*words)
    assert done.exit_code == 2
    assert f"Error: {message}\n" in done.stderr
    assert not list(Path().glob("job.*g"))


def test_a_file_of_another_kind_is_refused(folder: Path) -> None:
    (folder / "notes").write_text("hello")
    done = tidegate("check", "notes")
    assert done.exit_code == 2
    assert "notes: a target is a file.py, a package.module, or a compiled pipeline.json" in done.stderr


def test_functions_that_are_no_targets_are_refused(folder: Path) -> None:
    (folder / "odd.py").write_text(
        "import tidegate as tg\n"
        "def two(a, b): return tg.Pipeline()\n"
        "def wrong(n: int): return tg.Pipeline()\n"
        "def other(): return 3\n"
        "def empty(): return tg.Pipeline()\n"
    )
    assert (
        "odd.py:two takes a, b: the only parameter of a target is its options" in tidegate("check", "odd.py:two").stderr
    )
    assert "its options must be a subclass of tg.PipelineOptions" in tidegate("check", "odd.py:wrong").stderr
    assert "odd.py:other returned int, not a Pipeline" in tidegate("check", "odd.py:other").stderr
    empty = tidegate("check", "odd.py:empty")
    assert empty.exit_code == 2
    assert empty.stderr.startswith("error: this pipeline has no steps")


UNANNOTATED = (
    "import tidegate as tg\n"
    "class Own(tg.PipelineOptions):\n"
    "    count: int = 3\n"
    "def pipeline(options):\n"
    "    p = tg.Pipeline(options=options)\n"
    "    _ = p | tg.Create([options.count]) | tg.Map(print)\n"
    "    return p\n"
)


def test_a_missing_annotation_of_the_options_is_explained_in_errors_that_it_causes(folder: Path) -> None:
    (folder / "unannotated.py").write_text(UNANNOTATED)
    advice = (
        "The parameter 'options' of unannotated.py:pipeline has no annotation, so there are only the options that "
        "every pipeline has: write `options: Own`, with your subclass of tg.PipelineOptions"
    )
    flag = tidegate("run", "unannotated.py:pipeline", "--count", "5")
    assert flag.exit_code == 2
    assert f"unknown flag --count; --help lists those there are. {advice}" in flag.stderr
    check = tidegate("check", "unannotated.py:pipeline")
    assert check.exit_code != 0
    assert f"AttributeError: 'PipelineOptions' object has no attribute 'count'. {advice}" in check.stderr
    misspelt = tidegate("check", "unannotated.py:pipeline", "--chekcs", "all")
    assert misspelt.stderr.rstrip().endswith("unknown flag --chekcs: did you mean --checks?")

    (folder / "unannotated.py").write_text(UNANNOTATED.replace("(options)", "(options: Own)", 1))
    assert tidegate("run", "unannotated.py:pipeline", "--count", "5").stdout == "5\n"
    (folder / "unannotated.py").write_text(UNANNOTATED.replace("options.count", "7"))
    assert tidegate("run", "unannotated.py:pipeline").stdout == "7\n"


def test_a_script_can_have_the_name_of_a_module_of_python(folder: Path) -> None:
    (folder / "json.py").write_text(JOB)
    done = process(folder, "run", "./json.py", "--count", "1")
    assert done.returncode == 0, done.stderr
    assert done.stdout == "(Point(x=0), 1)\n"


def test_an_exception_in_expand_shows_step_line_and_the_authors_frames(folder: Path) -> None:
    (folder / "composite.py").write_text(
        "import tidegate as tg\n\nclass Rates(tg.PTransform):\n    def expand(self, pcoll):\n"
        "        return pcoll | {}['rates']\n\npipeline = tg.Pipeline()\npipeline | tg.Create([1]) | Rates()\n"
    )
    done = process(folder, "run", "composite.py")
    assert done.returncode == 2
    lines = done.stderr.splitlines()
    assert lines[:5] == [
        "error: KeyError: 'rates'",
        f"  in step 'Rates', applied at {folder / 'composite.py'}:8",
        "  while the pipeline was being built",
        "in your code, the innermost call last:",
        f'  File "{folder / "composite.py"}", line 5, in expand',
    ]
    assert TIDEGATE_CODE not in done.stderr


def test_an_undefined_name_in_an_annotation_is_reported(folder: Path) -> None:
    (folder / "typed.py").write_text(
        "from __future__ import annotations\nimport tidegate as tg\n\nclass Flags(tg.PipelineOptions):\n"
        "    out: Path | None = None\n\ndef pipeline(options: Flags) -> tg.Pipeline: ...\n\n"
        "def other(options: Settings) -> tg.Pipeline: ...\n"
    )
    done = process(folder, "run", "typed.py")
    assert (done.returncode, done.stderr) == (
        2,
        "error: Flags.out: an annotation names 'Path', which is not defined in __main__.typed: "
        "define or import it at the top of the module, and not only for type checkers\n",
    )
    done = process(folder, "run", "typed.py:other")
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1] == (
        "Error: an annotation of typed.py:other names 'Settings', which is not defined in __main__.typed: "
        "define or import it at the top of the module, and not only for type checkers"
    )


def test_an_exception_of_a_script_is_reported_with_its_line(folder: Path) -> None:
    (folder / "broken.py").write_text("import tidegate as tg\n\ntg.Pipelin()\n")
    done = process(folder, "run", "broken.py")
    assert done.returncode == 2
    assert done.stderr.startswith("error: AttributeError: tidegate has no Pipelin; did you mean tg.Pipeline?")
    assert f'File "{folder / "broken.py"}", line 3' in done.stderr
    assert TIDEGATE_CODE not in done.stderr


@pytest.mark.parametrize("command", ["run", "check", "graph", "explain"])
def test_a_syntax_error_is_misuse_and_its_line_is_shown(folder: Path, command: str) -> None:
    (folder / "syntax.py").write_text("x = 1\ndef f(:\n")
    (folder / "importing.py").write_text("import syntax\n")
    for target in ("syntax.py", "syntax", "importing.py"):
        done = tidegate(command, target)
        assert done.exit_code == 2
        first, *rest = done.stderr.splitlines()
        assert first == f"error: {folder / 'syntax.py'}:2 is not valid Python: invalid syntax"
        assert [line.strip() for line in rest] == ["def f(:", "^"]


@pytest.mark.parametrize("command", ["run", "check", "graph", "explain"])
def test_an_import_of_a_missing_package_is_misuse_and_its_line_and_a_remedy_are_shown(
    folder: Path, command: str
) -> None:
    (folder / "importing.py").write_text("import tidegate as tg\nimport no_such_package.inner\n")
    (folder / "outer.py").write_text("import importing\n")
    for target in ("importing.py", "importing", "outer.py"):
        done = tidegate(command, target)
        assert done.exit_code == 2
        assert done.stderr.splitlines() == [
            f"error: {folder / 'importing.py'}:2 imports no_such_package, which is not installed",
            f"Correct the name, or install its package for {sys.executable}",
        ]


def test_an_import_that_fails_while_the_pipeline_runs_is_an_error_of_the_run(folder: Path) -> None:
    (folder / "late.py").write_text(
        "import tidegate as tg\n\n\ndef load(name):\n    return __import__(name)\n\n\n"
        "with tg.Pipeline() as p:\n    p | tg.Create(['no_such_package']) | tg.Map(load) | tg.Map(print)\n"
    )
    done = process(folder, "run", "late.py")
    assert done.returncode == 1
    assert done.stderr.startswith("error: ModuleNotFoundError: No module named 'no_such_package'\n  in step ")


def test_an_error_while_the_pipeline_is_built_is_misuse_and_names_step_and_line(folder: Path) -> None:
    (folder / "wrong.py").write_text(
        "import tidegate as tg\npipeline = tg.Pipeline()\npipeline | tg.Create([1]) | 'twice' >> 3\n"
    )
    assert process(folder, "check", "wrong.py").returncode in (1, 2)
    (folder / "lock.py").write_text(
        "import threading\nimport tidegate as tg\nlock = threading.Lock()\npipeline = tg.Pipeline()\n"
        "pipeline | tg.Create([1]) | 'hold' >> tg.Map(lambda x: lock and x)\n"
    )
    done = process(folder, "check", "lock.py")
    assert done.returncode == 2
    assert "captures variable 'lock'" in done.stderr
    assert f"in step 'hold', applied at {folder / 'lock.py'}:5" in done.stderr


# --- the other commands --------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("folder")
def test_help_shows_the_flags_of_the_target_by_group() -> None:
    done = tidegate("run", "job.py", "--help")
    assert done.exit_code == 0
    assert done.stdout.startswith("Usage: tidegate run job.py [FLAGS]\n\nCounts points.\n")
    own, common = done.stdout.index("Flags of JobOptions:"), done.stdout.index("Common flags:")
    assert own < done.stdout.index("--count INT") < common < done.stdout.index("--memory_budget SIZE")


def test_help_without_a_target_is_that_of_the_command() -> None:
    done = tidegate("run", "--help")
    assert done.exit_code == 0
    assert "Usage: tidegate run [OPTIONS] TARGET" in done.stdout
    assert tidegate("run").exit_code == 2
    assert "compile" in tidegate("--help").stdout
    assert tidegate("--version").stdout.startswith("tidegate, version ")


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(
    ("form", "start"),
    [
        ("mermaid", "flowchart TB\n"),
        ("dot", 'digraph "points" {'),
        ("svg", "<svg xmlns="),
        ("html", "<!doctype html>"),
        ("json", '{\n  "version": 3,\n  "name": "points",'),
    ],
)
def test_graph_draws_in_every_format(form: str, start: str) -> None:
    done = tidegate("graph", "job.py", "--format", form)
    assert done.exit_code == 0, done.output
    assert done.stdout.startswith(start)


def test_graph_chooses_the_format_by_the_name_of_the_file(folder: Path) -> None:
    for name, start in {"a.svg": "<svg", "a.html": "<!doctype", "a.dot": "digraph", "a.mmd": "flowchart"}.items():
        done = tidegate("graph", "job.py", "-o", name, "--count", "2")
        assert done.exit_code == 0, done.output
        assert (folder / name).read_text().startswith(start)
    assert not list(folder.glob("*.part"))


@pytest.mark.usefixtures("folder")
def test_graph_draws_the_plan_on_request() -> None:
    assert "Stage" not in tidegate("graph", "job.py").stdout
    assert 'subgraph g0["Region 0"]' in tidegate("graph", "job.py", "--plan").stdout


def test_a_file_that_cannot_be_written_is_reported(folder: Path) -> None:
    done = tidegate("graph", "job.py", "-o", "nowhere/a.svg")
    assert done.exit_code == 1
    assert "can't write nowhere/a.svg: No such file or directory" in done.stderr
    assert not (folder / "nowhere").exists()


@pytest.mark.usefixtures("folder")
def test_explain_prints_the_plan() -> None:
    done = tidegate("explain", "job.py", "--runner", "direct")
    assert done.exit_code == 0, done.output
    assert done.stdout.startswith("Plan of 'points': ")
    assert "Region 0" in done.stdout


@pytest.mark.usefixtures("folder")
def test_check_prints_a_summary() -> None:
    done = tidegate("check", "job.py")
    assert (done.exit_code, done.stderr) == (0, ""), done.output
    assert done.stdout == "ok: 'points' has 5 steps, and the direct runner can run it\n"


def test_only_run_executes_code_of_a_compiled_pipeline(folder: Path) -> None:
    assert tidegate("compile", "job.py", "-o", "pipeline.json").exit_code == 0
    raw = json.loads((folder / "pipeline.json").read_text())
    import base64
    import hashlib
    import pickle

    bomb = pickle.dumps(_Bomb())
    for entry in raw["functions"].values():
        if "data" in entry["code"]:
            entry["code"] = {
                "data": base64.urlsafe_b64encode(bomb).decode(),
                "sha256": hashlib.sha256(bomb).hexdigest(),
            }
    (folder / "pipeline.json").write_text(json.dumps(raw))
    for command in (
        ["graph"],
        ["graph", "--format", "html"],
        ["graph", "--plan"],
        ["explain"],
        ["explain", "--verbose"],
        ["check"],
    ):
        done = tidegate(*command, "pipeline.json")
        assert done.exit_code == 0, done.output
    assert tidegate("graph", "pipeline.json", "--format", "json").exit_code == 0
    assert not (folder / "boom").exists()
    tidegate("run", "pipeline.json")
    assert (folder / "boom").exists()


class _Bomb:
    def __reduce__(self) -> object:
        return os.mkdir, ("boom",)


def test_a_damaged_compiled_pipeline_is_misuse_and_the_place_is_named(folder: Path) -> None:
    assert tidegate("compile", "job.py", "-o", "pipeline.json").exit_code == 0
    text = (folder / "pipeline.json").read_text()
    (folder / "pipeline.json").write_text(text[:200])
    done = process(folder, "run", "pipeline.json")
    assert done.returncode == 2
    assert done.stderr.startswith("error: pipeline.json ends in the middle, at line ")
    (folder / "pipeline.json").write_text(text.replace('"version": 3', '"version": 9', 1))
    done = process(folder, "run", "pipeline.json")
    assert done.returncode == 2
    assert done.stderr.startswith("error: pipeline.json has format version 9, but this Tidegate reads versions 1 to 3")


def explain_changed(folder: Path, change: Callable[[bytes], bytes]) -> Result:
    """Run `explain` on a compiled pipeline whose bytes were changed."""
    assert tidegate("compile", "job.py", "-o", "pipeline.json").exit_code == 0
    path = folder / "pipeline.json"
    path.write_bytes(change(path.read_bytes()))
    return tidegate("explain", "pipeline.json")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda data: b"\xef\xbb\xbf" + data, "begins with a byte order mark of UTF-8"),
        (lambda data: data.decode().encode("utf-16"), "begins with a byte order mark of UTF-16"),
        (lambda data: data.replace(b'"points"', rb'"\ud800"', 1), "contains text that is not Unicode"),
        (
            lambda data: data.replace(b'"version": 3', b'"version": ' + b"1" * 5000, 1),
            "can't be read: Exceeds the limit",
        ),
        (lambda data: data.replace(b'"false"', b'"fal', 1).replace(b'"fal', b'"fal"', 1), "'bad' is not JSON: 'fal'"),
        (lambda data: data.replace(rb'"\"direct\""', b'"[1]"', 1), "the option 'runner' must be a name, not [1]"),
    ],
)
def test_hostile_bytes_in_a_compiled_pipeline_are_misuse_and_no_internal_error(
    folder: Path, change: Callable[[bytes], bytes], message: str
) -> None:
    done = explain_changed(folder, change)
    assert done.exit_code == 2
    assert done.stderr.startswith("error: pipeline.json")
    assert message in done.stderr
    assert "a fault of Tidegate" not in done.stderr


def test_control_characters_in_a_compiled_pipeline_are_not_printed(folder: Path) -> None:
    label = b"a\\u001b[31m\\nerror: all is lost\\u009b2J\\u202e"
    assert explain_changed(folder, lambda data: data.replace(b"Twice", label)).exit_code == 0
    path = folder / "pipeline.json"
    path.write_text(path.read_text().replace('"points"', '"p\\u001b[31mq"').replace("job.py", "job\\u001b.py"))
    for command in (
        ["explain"], ["explain", "--runner", "streaming"], ["check"], ["graph"], ["graph", "--plan"],
        ["graph", "--format", "dot"], ["graph", "--format", "svg"], ["trace", "-o", "-"],
        ["run", "--progress", "on"], ["run", "--nonsense"],
    ):  # fmt: skip
        done = tidegate(command[0], "pipeline.json", *command[1:])
        printed = done.output if command[0] != "trace" else done.stderr
        assert printed
        strange = [letter for letter in printed if not letter.isprintable() and letter != "\n"]
        assert strange == [], command
        assert not [line for line in printed.splitlines() if line.startswith("error: all")], command


def test_control_characters_in_exceptions_of_the_author_are_not_printed(folder: Path) -> None:
    (folder / "raising.py").write_text(
        "import tidegate as tg\n"
        "def fail(n):\n"
        "    raise ValueError('over\\x1b[2Jwritten\\n\\tand on')\n"
        "pipeline = tg.Pipeline()\n"
        "pipeline | tg.Create([1]) | 'st\\x1bep' >> tg.Map(fail)\n"
    )
    done = tidegate("run", "raising.py")
    assert done.exit_code == 1
    assert r"ValueError: over\x1b[2Jwritten" + "\n\tand on" in done.stderr
    assert "\x1b" not in done.output


SECRETS = """
import pydantic
import tidegate as tg

class Options(tg.PipelineOptions):
    key: pydantic.SecretStr
    keys: list[pydantic.SecretStr] = []
    password: str = ""
    url: str = "http://example.org"
    captured: bool = False

def pipeline(options: Options) -> tg.Pipeline:
    p = tg.Pipeline()
    held = options.key.get_secret_value() if options.captured else "none"
    p | tg.Create([1]) | "ask" >> tg.Map(lambda n: (n, held))
    return p
"""


def test_secrets_are_not_written_and_flags_that_look_like_secrets_cause_a_warning(folder: Path) -> None:
    (folder / "secret.py").write_text(SECRETS)
    flags = ["--key", "hunter2", "--keys", "hunter3", "--password", "hunter4", "--url", "http://me:hunter5@example.org"]
    done = tidegate("compile", "secret.py", *flags, "-o", "pipeline.json")
    assert done.exit_code == 0, done.output
    warned = [line.partition(" ")[2].partition(" ")[0] for line in done.stderr.splitlines() if "looks like" in line]
    assert warned == ["--password", "--url"]
    assert done.stderr.startswith(
        "warning: --password looks like a secret, and is written in plain text: declare it as "
    )
    written = (folder / "pipeline.json").read_text()
    assert "hunter2" not in written
    assert "hunter3" not in written
    assert set(dict(json.loads(written)["options"])) == {"password", "url", "captured", "runner"}
    assert tidegate("run", "pipeline.json").exit_code == 0


def test_a_pipeline_with_a_secret_in_its_code_is_not_compiled(folder: Path) -> None:
    (folder / "secret.py").write_text(SECRETS)
    done = tidegate("compile", "secret.py", "--key", "hunter2", "--captured", "-o", "pipeline.json")
    assert done.exit_code == 2
    assert done.stderr.startswith("error: the file would contain the secret of --key, which is part of step 'ask': ")
    assert not (folder / "pipeline.json").exists()


@pytest.mark.parametrize(("umask", "mode"), [(0o022, 0o644), (0o077, 0o600), (0o002, 0o664)])
def test_the_file_of_compile_follows_the_umask(folder: Path, umask: int, mode: int) -> None:
    before = os.umask(umask)
    try:
        assert tidegate("compile", "job.py", "-o", "pipeline.json").exit_code == 0
    finally:
        os.umask(before)
    assert (folder / "pipeline.json").stat().st_mode & 0o777 == mode


def test_flags_that_were_compiled_in_are_fixed_and_common_ones_are_defaults(folder: Path) -> None:
    compiled = tidegate("compile", "job.py", "--count", "5", "--checks", "all", "-o", "pipeline.json")
    assert compiled.exit_code == 0, compiled.output
    options = dict(json.loads((folder / "pipeline.json").read_text())["options"])
    assert options == {"bad": "false", "checks": '"all"', "count": "5", "output": '""', "runner": '"direct"'}
    done = tidegate("run", "pipeline.json", "--count", "6")
    assert done.exit_code == 2
    assert done.stderr == (
        "error: --count was fixed to 5 when pipeline.json was compiled: compile it again for another value\n"
    )
    done = tidegate("run", "pipeline.json", "--no-bad")
    assert done.exit_code == 2
    assert done.stderr == (
        "error: --bad was fixed to false when pipeline.json was compiled: compile it again for another value\n"
    )
    assert tidegate("compile", "pipeline.json", "-o", "recompiled.json").exit_code == 0
    assert (folder / "recompiled.json").read_text() == (folder / "pipeline.json").read_text()


def test_a_compiled_pipeline_of_other_versions_runs_with_a_warning(folder: Path) -> None:
    assert tidegate("compile", "job.py", "-o", "pipeline.json").exit_code == 0
    raw = json.loads((folder / "pipeline.json").read_text())
    raw["environment"]["distributions"] = [["click", "0.0.1"]]
    (folder / "pipeline.json").write_text(json.dumps(raw))
    done = process(folder, "run", "pipeline.json")
    assert done.returncode == 0
    assert done.stderr.startswith("warning: pipeline.json was compiled with click 0.0.1; installed here is ")


def test_compile_without_a_file_to_write_to_is_misuse() -> None:
    assert tidegate("compile", "job.py").exit_code == 2


def test_a_target_may_have_an_output_flag_of_its_own(folder: Path) -> None:
    done = tidegate("compile", "job.py", "--output", "its own", "-o", "pipeline.json")
    assert done.exit_code == 0, done.output
    assert dict(json.loads((folder / "pipeline.json").read_text())["options"])["output"] == '"its own"'
    assert not (folder / "its own").exists()


@pytest.mark.usefixtures("folder")
def test_flags_after_two_dashes_belong_to_the_target() -> None:
    done = tidegate("graph", "job.py", "--format", "dot", "--", "--count", "x")
    assert done.exit_code == 2
    assert done.stderr.startswith("error: --count takes a whole number, not 'x'")


@pytest.mark.usefixtures("folder")
def test_compile_writes_to_stdout_for_a_dash() -> None:
    done = tidegate("compile", "job.py", "-o", "-")
    assert done.exit_code == 0
    assert json.loads(done.stdout)["name"] == "points"


@pytest.mark.parametrize("command", ["run", "graph", "explain", "compile", "check", "trace"])
def test_every_command_has_help_without_a_target(command: str) -> None:
    done = tidegate(command, "--help")
    assert done.exit_code == 0
    assert f"Usage: tidegate {command} [OPTIONS] TARGET" in done.stdout


@pytest.mark.usefixtures("folder")
def test_compile_without_a_file_to_write_to_names_the_missing_flag() -> None:
    done = tidegate("compile", "job.py")
    assert done.exit_code == 2
    assert "Error: -o FILE is missing: the file to write to" in done.stderr


def test_a_reader_that_closes_the_pipe_causes_no_message(folder: Path) -> None:
    command = [sys.executable, "-c", "from tidegate.cli import main; main()", "compile", "job.py", "-o", "-"]
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "w") as closed_pipe:
        done = subprocess.run(
            command,
            cwd=folder,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            stdout=closed_pipe,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert (done.returncode, done.stderr) == (1, "")


@pytest.mark.usefixtures("folder")
def test_missing_code_of_a_compiled_pipeline_is_named() -> None:
    assert tidegate("compile", "job.py", "-o", "job.json").exit_code == 0
    compiled = json.loads(Path("job.json").read_text())
    compiled["functions"]["print"]["code"] = {
        "module": "elsewhere",
        "name": "show",
        "distribution": "any",
        "version": "7",
    }
    Path("job.json").write_text(json.dumps(compiled))
    done = tidegate("run", "job.json")
    assert done.exit_code == 2
    assert done.stderr == (
        "error: 'print' can't be loaded here: ModuleNotFoundError: No module named 'elsewhere'. It was taken from any "
        "7\n"
    )


def test_check_warns_of_steps_without_a_reader(folder: Path) -> None:
    (folder / "idle.py").write_text(
        "import tidegate as tg\n\npipeline = tg.Pipeline()\n"
        "pipeline | tg.Create([(1, 2)]) | 'unread' >> tg.GroupByKey()\n"
    )
    done = tidegate("check", "idle.py")
    assert done.exit_code == 0
    assert done.stderr == "warning: 'Create' is left out: nothing reads its result\n" + (
        "warning: 'unread' is left out: nothing reads its result\n"
    )


def test_check_warns_of_a_transform_without_a_reader_but_not_of_its_unread_parts(folder: Path) -> None:
    (folder / "partly.py").write_text(
        "import tidegate as tg\nfrom tidegate.graph import Graph\n\n"
        "pipeline = tg.Pipeline()\n"
        "graph = Graph(pipeline | tg.Create([(1, 2)]))\n"
        "graph.degrees() | tg.Map(print)\n"
        "graph.in_degrees()\n"
    )
    done = tidegate("check", "partly.py")
    assert done.exit_code == 0
    assert done.stderr == "warning: 'in_degrees' is left out: nothing reads its result\n"


@pytest.mark.parametrize("name", ["click", "importlib", "tidegate", "site-packages", "a b", "wörk 🌊", "tests"])
def test_the_frames_of_the_author_are_shown_for_any_name_of_the_folder(tmp_path: Path, name: str) -> None:
    folder = tmp_path / name
    folder.mkdir()
    (folder / "beside.py").write_text("def fail(n):\n    return 1 // n\n")
    (folder / "job.py").write_text(
        "import tidegate as tg\nfrom beside import fail\n\n\n"
        "def pipeline() -> tg.Pipeline:\n"
        "    p = tg.Pipeline()\n"
        "    p | tg.Create([0]) | 'divide' >> tg.Map(fail)\n"
        "    return p\n"
    )
    done = process(tmp_path, "run", str(folder / "job.py"))
    assert done.returncode == 1
    assert "in step 'divide'" in done.stderr
    assert f'File "{folder / "beside.py"}", line 2, in fail' in done.stderr
    compiled = process(tmp_path, "compile", str(folder / "job.py"), "-o", str(tmp_path / "pipeline.json"))
    assert compiled.returncode == 0, compiled.stderr
    functions = json.loads((tmp_path / "pipeline.json").read_text())["functions"]
    assert "data" in functions["fail"]["code"], "a module of the author is pickled by value"
