"""Scripts with `with tg.Pipeline() as p:`, run by Python and by the command: which flags apply and what is executed."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tidegate.runners.streaming.model.options import StreamingOptions

ROOT = Path(__file__).parents[2]

WORDS = """\
import sys
import tidegate as tg

def runner():
    return "streaming" if "tidegate.runners.streaming.process.job_process" in sys.modules else "direct"

print("before")
with tg.Pipeline() as p:
    p | tg.Create(["a"]) | tg.Map(lambda word: print(word, runner()))
print("after")
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path


def process(folder: Path, *command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *command],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1"},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


def tidegate(folder: Path, *args: str) -> subprocess.CompletedProcess[str]:
    return process(folder, "-c", "from tidegate.cli import main; main()", *args)


def write(folder: Path, text: str, name: str = "script.py") -> None:
    (folder / name).write_text(text)


# --- by Python -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("runner", ["direct", "streaming"])
def test_a_script_run_by_python_uses_the_runner_of_the_flag(folder: Path, runner: str) -> None:
    write(folder, WORDS)
    done = process(folder, "script.py", "--runner", runner)
    assert (done.returncode, done.stdout, done.stderr) == (0, f"before\na {runner}\nafter\n", "")


@pytest.mark.parametrize(
    ("pipeline", "flags", "printed"),
    [
        ("tg.Pipeline('streaming')", ("--runner", "direct", "--checks", "off"), "direct off 2"),
        ("tg.Pipeline('streaming')", ("--workers", "3"), "streaming sample 3"),
        ("tg.Pipeline(tg.DirectRunner())", ("--checks", "off"), "direct off 2"),
        ("tg.Pipeline(options=[])", ("--runner", "streaming", "--anything"), "direct sample 2"),
        ("tg.Pipeline(options={'checks': 'all'})", ("--checks", "off"), "direct all 2"),
    ],
)
def test_flags_override_the_runner_in_the_script_but_not_options(
    folder: Path, pipeline: str, flags: tuple[str, ...], printed: str
) -> None:
    write(
        folder,
        f"import tidegate as tg\nfrom tidegate.runners.direct import DirectRunner\ntg.DirectRunner = DirectRunner\n"
        f"p = {pipeline}\n"
        "runner = p.runner or p.options.runner\n"
        "print(getattr(runner, 'name', runner), p.options.checks, getattr(p.options, 'workers', 2))\n",
    )
    done = process(folder, "script.py", *flags)
    assert (done.returncode, done.stdout, done.stderr) == (0, printed + "\n", "")


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (("--runner", "nonsense"), "unknown runner 'nonsense': --runner takes one of direct, streaming, spark"),
        (("--checks", "some"), "--checks takes one of sample, all, off, not 'some', for example --checks sample"),
        (("--chekcs", "all"), "unknown flag --chekcs: did you mean --checks?"),
        (("-v",), "unknown flag -v: flags start with two dashes; --help lists them"),
        (("--workers", "2"), "--workers is a flag of the streaming runner, but this run is on direct: add "),
    ],
)
def test_an_invalid_flag_is_refused_and_nothing_runs(folder: Path, flags: tuple[str, ...], message: str) -> None:
    write(folder, WORDS)
    for done in (process(folder, "script.py", *flags), tidegate(folder, "run", "script.py", *flags)):
        assert done.returncode == 2
        assert message in done.stderr
        assert "a direct" not in done.stdout
        assert "after" not in done.stdout


def test_the_help_of_a_script_lists_the_flags_of_the_given_runner(folder: Path) -> None:
    write(folder, WORDS)
    for done in (
        process(folder, "script.py", "--runner", "streaming", "--help"),
        tidegate(folder, "run", "script.py", "--runner", "streaming", "--help"),
    ):
        assert done.returncode == 0
        listed = set(re.findall(r"^  --(\w+)", done.stdout, re.MULTILINE))
        assert listed == StreamingOptions.model_fields.keys() - {"checks"}  # only the direct runner has it
        assert "--runner TEXT               which runner runs the pipeline (default: streaming)" in done.stdout
        assert done.stdout.endswith("Other runners have other flags: --runner direct --help, --runner spark --help.\n")
        assert "after" not in done.stdout.splitlines()


@pytest.mark.parametrize("place", ["script.py:pipeline", "job.json"])
def test_the_help_of_any_target_lists_the_flags_of_the_given_runner(folder: Path, place: str) -> None:
    write(
        folder,
        "import tidegate as tg\nclass Own(tg.PipelineOptions):\n    word: str = ''\n"
        "def pipeline(options: Own) -> tg.Pipeline:\n    p = tg.Pipeline(options=options)\n"
        "    p | tg.Create([options.word]) | tg.Map(print)\n    return p\n",
    )
    assert tidegate(folder, "compile", "script.py", "-o", "job.json").returncode == 0
    done = tidegate(folder, "run", place, "--runner=spark", "--help")
    assert done.returncode == 0, done.stderr
    assert "Flags of the spark runner:\n  --spark_master TEXT" in done.stdout


def test_help_is_printed_before_errors_of_the_pipeline(folder: Path) -> None:
    write(folder, "import tidegate as tg\nwith tg.Pipeline() as p:\n    p | tg.io.ReadFromText('nowhere')\n")
    for done in (process(folder, "script.py", "-h"), tidegate(folder, "run", "script.py", "-h")):
        assert done.returncode == 0, done.stderr
        assert "Common flags:" in done.stdout


def test_positional_arguments_are_left_to_the_script(folder: Path) -> None:
    write(folder, WORDS.replace('["a"]', "sys.argv[1:2]"))
    for done in (process(folder, "script.py", "word"), tidegate(folder, "run", "script.py", "word")):
        assert done.returncode == 0, done.stderr
        assert "word direct\n" in done.stdout


def test_flags_that_the_script_reads_with_its_own_options_are_accepted(folder: Path) -> None:
    write(
        folder,
        "import tidegate as tg\nclass Own(tg.PipelineOptions):\n    word: str = ''\n\noptions = Own.from_args()\n"
        "with tg.Pipeline() as p:\n    p | tg.Create([options.word]) | tg.Map(print)\n",
    )
    for done in (
        process(folder, "script.py", "--word", "x", "--runner", "streaming"),
        tidegate(folder, "run", "script.py", "--word", "x", "--runner", "streaming"),
    ):
        assert (done.returncode, done.stdout, done.stderr) == (0, "x\n", "")
    done = process(folder, "script.py", "--wrod", "x")
    assert "unknown flag --wrod: did you mean --word?" in done.stderr


def test_unknown_flags_are_accepted_if_the_script_takes_them_for_its_own_parser(folder: Path) -> None:
    write(
        folder,
        "import argparse\nimport tidegate as tg\n_, rest = tg.PipelineOptions.from_known_args()\n"
        "parser = argparse.ArgumentParser()\nparser.add_argument('--word')\nword = parser.parse_args(rest).word\n"
        "with tg.Pipeline() as p:\n    p | tg.Create([word, p.options.checks]) | tg.Map(print)\n",
    )
    done = process(folder, "script.py", "--word", "x", "--checks", "off")
    assert (done.returncode, done.stdout, done.stderr) == (0, "x\noff\n", "")


def test_the_refusal_of_a_flag_says_how_a_script_can_parse_its_command_line_itself(folder: Path) -> None:
    write(folder, WORDS)
    done = process(folder, "script.py", "--port", "80")
    assert done.stderr.splitlines() == [
        "error: unknown flag --port; --help lists those there are",
        "This pipeline takes its flags from the command line of its script. If the script parses its command line "
        "itself, pass options to the pipeline, such as tg.Pipeline(options=[])",
    ]
    write(folder, WORDS.replace("tg.Pipeline()", "tg.Pipeline(options=[])"))
    assert process(folder, "script.py", "--port", "80").stdout == "before\na direct\nafter\n"


def test_flags_apply_to_a_pipeline_in_a_function_of_the_script_but_not_of_another_module(
    folder: Path,
) -> None:
    write(folder, "import tidegate as tg\ndef make():\n    return tg.Pipeline()\n", "library.py")
    write(
        folder,
        "import library\nimport tidegate as tg\ndef main():\n    print(tg.Pipeline().options.checks)\n"
        "    print(library.make().options.checks)\nif __name__ == '__main__':\n    main()\n",
    )
    done = process(folder, "script.py", "--checks", "off", "--foreign")
    assert (done.returncode, done.stdout) == (0, "off\nsample\n"), done.stderr


def test_flags_apply_to_the_pipeline_of_a_module_that_is_run_by_name(folder: Path) -> None:
    (folder / "package").mkdir()
    write(folder, "", "package/__init__.py")
    write(folder, WORDS, "package/job.py")
    done = process(folder, "-m", "package.job", "--runner", "streaming")
    assert (done.returncode, done.stdout, done.stderr) == (0, "before\na streaming\nafter\n", "")


@pytest.mark.parametrize(
    "command",
    [
        ("-c", WORDS, "--foreign", "x"),
        ("-m", "pytest", "-q", "-p", "no:cacheprovider", "test_words.py"),
        ("-i", "-", "--foreign"),
    ],
)
def test_code_that_is_no_script_does_not_read_the_command_line(folder: Path, command: tuple[str, ...]) -> None:
    write(folder, f"def test_words():\n    exec({WORDS!r}, dict(globals()))\n", "test_words.py")
    done = subprocess.run(
        [sys.executable, *command],
        input=WORDS.replace('print("after")', '\nprint("after")'),
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert "OptionsError" not in done.stdout + done.stderr
    assert "a direct" in done.stdout or "1 passed" in done.stdout, done.stdout + done.stderr


# --- by the command ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("runner", ["direct", "streaming"])
def test_the_command_runs_the_pipeline_of_a_script_on_the_given_runner_and_not_the_code_after_it(
    folder: Path, runner: str
) -> None:
    write(folder, WORDS)
    done = tidegate(folder, "run", "script.py", "--runner", runner)
    assert (done.returncode, done.stdout, done.stderr) == (0, f"before\na {runner}\n", "")


@pytest.mark.parametrize("ending", ["with tg.Pipeline() as p:\n    steps(p)", "p = tg.Pipeline()\nsteps(p)\np.run()"])
@pytest.mark.parametrize("command", ["graph", "explain", "check", "compile"])
def test_inspecting_a_script_executes_neither_its_pipeline_nor_the_code_after_it(
    folder: Path, command: str, ending: str
) -> None:
    write(
        folder,
        "import tidegate as tg\ndef steps(p):\n"
        "    p | tg.Create(['a']) | tg.Map(lambda x: open('ran', 'w')) | tg.Map(print)\n"
        f"{ending}\nopen('after', 'w')\n",
    )
    done = tidegate(folder, command, "script.py", *(("-o", "-") if command == "compile" else ()))
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout
    assert {path.name for path in folder.iterdir()} - {"__pycache__"} == {"script.py"}


def test_a_script_is_traced_once(folder: Path) -> None:
    write(folder, WORDS)
    done = tidegate(folder, "trace", "script.py")
    assert done.returncode == 0, done.stderr
    assert done.stdout == "before\na direct\n"
    assert (folder / "trace.html").exists()


def test_flags_of_the_command_apply_while_the_pipeline_is_built(folder: Path) -> None:
    write(
        folder,
        "import tidegate as tg\ndef length(word: str) -> int:\n    return len(word)\n"
        "def half(n: float) -> float:\n    return n / 2\n"
        "with tg.Pipeline() as p:\n    p | tg.Create(['a']) | tg.Map(length) | tg.Map(length)\n",
    )
    assert tidegate(folder, "check", "script.py").returncode == 2
    assert tidegate(folder, "check", "script.py", "--type_check", "off").returncode == 0
    assert "TypeError" in process(folder, "script.py", "--type_check", "off").stderr


def test_resources_that_the_script_has_opened_around_the_pipeline_are_open_while_it_runs(folder: Path) -> None:
    write(
        folder,
        "import pathlib, tempfile\nimport tidegate as tg\n"
        "with tempfile.TemporaryDirectory() as place:\n    try:\n"
        "        (pathlib.Path(place) / 'in').write_text('hello')\n"
        "        with tg.Pipeline() as p:\n"
        "            p | tg.io.ReadFromText(place + '/in') | tg.Map(print)\n"
        "    finally:\n        print('closed', p.result.state.name)\n",
    )
    for done in (process(folder, "script.py"), tidegate(folder, "run", "script.py")):
        assert (done.returncode, done.stdout, done.stderr) == (0, "hello\nclosed DONE\n", "")


@pytest.mark.parametrize("caught", ["except Exception:\n    print('caught')", "except BaseException:\n    pass"])
def test_exception_handlers_of_the_script_do_not_catch_those_of_the_command(folder: Path, caught: str) -> None:
    write(
        folder,
        "import tidegate as tg\ntry:\n    with tg.Pipeline() as p:\n"
        f"        p | tg.Create([0]) | 'divide' >> tg.Map(lambda x: 1 / x) | tg.Map(print)\n{caught}\n"
        "with tg.Pipeline(options=[]) as p:\n    p | tg.Create(['second']) | tg.Map(print)\n",
    )
    done = tidegate(folder, "run", "script.py:p")
    assert done.returncode == 2
    assert "script.py has several pipelines: p (line 3), p (line 7); " in done.stderr
    write(folder, (folder / "script.py").read_text().replace("Pipeline()", "Pipeline(name='first')"))
    assert tidegate(folder, "check", "script.py:first").stdout.startswith("ok: 'first' has 3 steps")
    done = tidegate(folder, "run", "script.py:first")
    assert done.returncode == 1
    assert done.stderr.startswith("error: ZeroDivisionError: division by zero\n  in step 'divide'")
    assert done.stdout == ""


def test_an_exception_of_a_script_after_its_pipeline_is_a_warning(folder: Path) -> None:
    write(
        folder,
        "import tidegate as tg\ntry:\n    with tg.Pipeline() as p:\n        p | tg.Create([0]) | tg.Map(print)\n"
        "finally:\n    p.result.metrics()\n",
    )
    done = tidegate(folder, "check", "script.py")
    assert (done.returncode, done.stdout) == (0, "ok: 'pipeline' has 2 steps, and the direct runner can run it\n")
    assert done.stderr == (
        "warning: script.py ended with BuildError: this pipeline has no result: it has not run. "
        "Call run(), or leave its `with` block\n"
    )


SEVERAL = """\
import tidegate as tg

with tg.Pipeline() as p:
    p | tg.Create(["one"]) | tg.Map(print)
with tg.Pipeline(name="the second") as q:
    q | tg.Create(["two"]) | tg.Map(print)
third = tg.Pipeline()
third | tg.Create(["three"]) | tg.Map(print)
"""


def test_several_pipelines_of_a_script_are_listed_and_each_can_be_run_by_its_name(folder: Path) -> None:
    write(folder, SEVERAL)
    done = tidegate(folder, "run", "script.py")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.splitlines()[-1] == (
        "Error: script.py has several pipelines: p (line 3), the second (line 5), third (line 7); write script.py:p"
    )
    for name, printed in {"p": "one", "q": "two", "the second": "two", "third": "three"}.items():
        done = tidegate(folder, "run", f"script.py:{name}")
        assert (done.returncode, done.stdout, done.stderr) == (0, f"{printed}\n", "")
    done = tidegate(folder, "run", "script.py:fourth")
    assert "script.py has no 'fourth'; it has " in done.stderr
    assert done.stdout == ""


def test_a_function_and_a_pipeline_that_is_run_are_two_targets(folder: Path) -> None:
    write(
        folder,
        "import tidegate as tg\ndef pipeline():\n    p = tg.Pipeline()\n    p | tg.Create([1]) | tg.Map(print)\n"
        "    return p\nwith tg.Pipeline() as other:\n    other | tg.Create([2]) | tg.Map(print)\n",
    )
    assert "several pipelines: pipeline (line 2), other (line 6)" in tidegate(folder, "run", "script.py").stderr
    assert tidegate(folder, "run", "script.py:pipeline").stdout == "1\n"
    assert tidegate(folder, "run", "script.py:other").stdout == "2\n"


def test_pipelines_that_are_built_in_a_loop_are_run_by_name(folder: Path) -> None:
    write(
        folder,
        "import tidegate as tg\nfor city in ('rome', 'oslo'):\n    with tg.Pipeline(name=city) as p:\n"
        "        p | tg.Create([city]) | tg.Map(print)\n",
    )
    assert "several pipelines: p (line 3, in a loop); " in tidegate(folder, "run", "script.py").stderr
    assert tidegate(folder, "run", "script.py:oslo").stdout == "oslo\n"


MAIN_GUARD = """\
import dataclasses
import tidegate as tg

@dataclasses.dataclass(frozen=True)
class Word:
    text: str

def main():
    with tg.Pipeline() as p:
        p | tg.Create(["a", "a"]) | tg.Map(Word) | tg.CombinePerElement(len) | tg.Map(print)

if __name__ == "__main__":
    main()
    print("after")
"""


@pytest.mark.parametrize("runner", ["direct", "streaming"])
def test_a_pipeline_under_the_main_guard_is_a_target(folder: Path, runner: str) -> None:
    write(folder, MAIN_GUARD)
    done = process(folder, "script.py", "--runner", runner)
    assert (done.returncode, done.stdout, done.stderr) == (0, "(Word(text='a'), 2)\nafter\n", "")
    done = tidegate(folder, "run", "script.py", "--runner", runner)
    assert (done.returncode, done.stdout, done.stderr) == (0, "(Word(text='a'), 2)\n", "")
    assert tidegate(folder, "compile", "script.py", "-o", "job.json").returncode == 0
    assert tidegate(folder, "run", "job.json", "--runner", runner).stdout == "(Word(text='a'), 2)\n"


def test_a_main_guard_is_not_executed_if_the_name_is_found_without_it(folder: Path) -> None:
    write(
        folder,
        "import tidegate as tg\ndef pipeline():\n    with tg.Pipeline() as p:\n"
        "        p | tg.Create([1]) | tg.Map(print)\n"
        "if __name__ == '__main__':\n    print('guarded')\n    pipeline()\n",
    )
    done = tidegate(folder, "run", "script.py")
    assert (done.returncode, done.stdout, done.stderr) == (0, "1\n", "")
    done = tidegate(folder, "run", "script.py:other")
    assert done.returncode == 2
    assert "guarded" not in done.stdout


def test_a_module_that_runs_its_pipeline_is_a_target(folder: Path) -> None:
    (folder / "package").mkdir()
    write(folder, "", "package/__init__.py")
    write(folder, WORDS, "package/job.py")
    done = tidegate(folder, "run", "package.job", "--runner", "streaming")
    assert (done.returncode, done.stdout, done.stderr) == (0, "before\na streaming\n", "")


def test_a_pipeline_that_an_imported_module_runs_is_refused(folder: Path) -> None:
    write(folder, WORDS, "library.py")
    write(folder, "import library\n" + WORDS)
    done = tidegate(folder, "run", "script.py")
    assert done.returncode == 2
    assert "library.py:8 runs a pipeline when it is imported by script.py: move that into a function" in done.stderr
    assert "a direct" not in done.stdout


@pytest.mark.parametrize("runner", ["direct", "streaming"])
def test_an_unbounded_run_without_a_terminal_reports_that_it_runs_until_it_is_stopped(
    folder: Path, runner: str
) -> None:
    write(
        folder,
        "import tidegate as tg\np = tg.Pipeline()\nlive = p | tg.PeriodicImpulse(0.01)\n"
        "live | tg.Map(lambda _: 1)\nprint(len(live.head(1)))\nresult = p.run()\nresult.cancel()\n"
        "result.wait_until_finish()\n",
    )
    line = "the pipeline 'pipeline' is running until it is stopped (Ctrl-C or SIGTERM); no --run_for"
    done = process(folder, "script.py", "--runner", runner)
    assert (done.returncode, done.stdout) == (0, "1\n"), done.stderr
    assert done.stderr.count(f"tidegate: {line}\n") == 1
    assert line not in process(folder, "script.py", "--runner", runner, "--run_for", "60").stderr
    assert line not in process(folder, "script.py", "--runner", runner, "--progress", "off").stderr


def test_an_unbounded_script_with_a_duration_ends(folder: Path) -> None:
    write(
        folder,
        "import tidegate as tg\nwith tg.Pipeline() as p:\n"
        "    p | tg.PeriodicImpulse(0.01) | tg.Map(lambda _: 1) | tg.WindowInto(tg.FixedWindows(1)) | tg.Map(print)\n",
    )
    for done in (
        process(folder, "script.py", "--run_for", "200ms"),
        tidegate(folder, "run", "script.py", "--run_for", "200ms"),
    ):
        assert (done.returncode, done.stderr) == (0, "")
        assert set(done.stdout.split()) == {"1"}
