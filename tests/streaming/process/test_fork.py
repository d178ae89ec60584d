"""A job's process that is forked from its client's: what it has of it, and what not."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

HEAD = """
import os, signal, socket, sys, threading
from dataclasses import dataclass
import tidegate as tg

def run(build, *flags):
    with tg.Pipeline(options=["--runner", "streaming", "--workers", "2", *flags]) as p:
        build(p)

def said(p, values, fn):
    p | tg.Create(values) | tg.Map(fn) | "say" >> tg.Map(print)
"""


def script(tmp_path: Path, body: str) -> list[str]:
    """The lines that a script prints, sorted."""
    path = tmp_path / "script.py"
    path.write_text(HEAD + body)
    done = subprocess.run([sys.executable, str(path)], capture_output=True, text=True, timeout=60, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    return sorted(done.stdout.splitlines())


def test_a_script_of_one_thread_is_forked_with_the_values_it_has(tmp_path: Path) -> None:
    said = script(
        tmp_path,
        """
class Untold:
    def __reduce__(self):
        raise TypeError("it stays in its process")

run(lambda p: said(p, [Untold(), Untold()], lambda value: type(value).__name__))
""",
    )
    assert said == ["Untold", "Untold"]


def test_a_script_with_another_thread_starts_its_job_anew(tmp_path: Path) -> None:
    said = script(
        tmp_path,
        """
over = threading.Event()

def how(value):
    return value + (" forked" if hasattr(sys.modules["__main__"], "HERE") else " anew")

HERE = True
thread = threading.Thread(target=over.wait)
thread.start()
try:
    run(lambda p: said(p, ["with a thread:"], how))
finally:
    over.set()
thread.join()
run(lambda p: said(p, ["without:"], how))
""",
    )
    assert said == ["with a thread: anew", "without: forked"]


def test_classes_of_the_script_are_the_same_in_values_and_in_functions(tmp_path: Path) -> None:
    said = script(
        tmp_path,
        """
@dataclass(frozen=True)
class Point:
    x: int

def build(p):
    points = p | tg.Create([Point(n % 3) for n in range(9000)])
    counted = points | tg.Map(lambda point: (point, isinstance(point, Point))) | tg.CombinePerKey(all)
    counted | tg.Map(lambda pair: (pair[0].x, pair[1], type(pair[0]) is Point)) | tg.Map(print)

run(build)
""",
    )
    assert said == ["(0, True, True)", "(1, True, True)", "(2, True, True)"]


def test_open_files_of_the_client_are_out_of_reach_and_stay_intact(tmp_path: Path) -> None:
    said = script(
        tmp_path,
        """
ours, theirs = socket.socketpair()
number = theirs.fileno()

def reach(value):
    try:
        os.write(number, b"x")
    except OSError as error:
        return error.strerror

run(lambda p: said(p, [1], reach))
ours.setblocking(False)
theirs.close()
print(ours.recv(1))
""",
    )
    assert said == ["Bad file descriptor", "b''"]


def test_functions_print_to_stdout_even_if_the_script_has_replaced_it(tmp_path: Path) -> None:
    said = script(
        tmp_path,
        """
sys.stdout = open("elsewhere", "w")
run(lambda p: said(p, ["printed"], str))
print("by the script")
""",
    )
    assert said == ["printed"]
    assert (tmp_path / "elsewhere").read_text() == "by the script\n"


def test_buffered_output_and_exit_handlers_of_the_script_run_once(tmp_path: Path) -> None:
    said = script(
        tmp_path,
        """
import atexit
atexit.register(print, "the end")
signal.signal(signal.SIGTERM, lambda *_: print("heard"))
print("before", end="")
run(lambda p: said(p, [1], lambda value: signal.getsignal(signal.SIGTERM) == signal.SIG_DFL))
print(" after")
""",
    )
    assert said == sorted(["beforeTrue", " after", "the end"])


def test_a_job_that_is_killed_is_told_of(tmp_path: Path) -> None:
    said = script(
        tmp_path,
        """
try:
    run(lambda p: said(p, [1], lambda value: os.kill(os.getppid(), signal.SIGKILL)))
except tg.RunError as error:
    print(error)
""",
    )
    assert said[-1] == "the job's process has died (killed by SIGKILL), and its workers with it"


def test_a_script_that_heeds_no_children_hears_of_its_job_all_the_same(tmp_path: Path) -> None:
    said = script(
        tmp_path,
        """
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
run(lambda p: said(p, [1, 2], lambda value: value * 2))
""",
    )
    assert said == ["2", "4"]
