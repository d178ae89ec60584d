"""The process of a job is forked from its client's: what it inherits, and what it doesn't."""

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

def print_each(p, values, fn):
    p | tg.Create(values) | tg.Map(fn) | "print" >> tg.Map(print)
"""


def script(tmp_path: Path, body: str) -> list[str]:
    """The lines that a script prints, sorted."""
    path = tmp_path / "script.py"
    path.write_text(HEAD + body)
    done = subprocess.run([sys.executable, str(path)], capture_output=True, text=True, timeout=60, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    return sorted(done.stdout.splitlines())


def test_a_script_of_one_thread_is_forked_with_the_values_it_has(tmp_path: Path) -> None:
    printed = script(
        tmp_path,
        """
class Unpicklable:
    def __reduce__(self):
        raise TypeError("it can't be pickled")

run(lambda p: print_each(p, [Unpicklable(), Unpicklable()], lambda value: type(value).__name__))
""",
    )
    assert printed == ["Unpicklable", "Unpicklable"]


def test_a_script_with_another_thread_starts_a_new_process_for_its_job(tmp_path: Path) -> None:
    printed = script(
        tmp_path,
        """
over = threading.Event()

def how(value):
    return value + (" forked" if hasattr(sys.modules["__main__"], "HERE") else " anew")

HERE = True
thread = threading.Thread(target=over.wait)
thread.start()
try:
    run(lambda p: print_each(p, ["with a thread:"], how))
finally:
    over.set()
thread.join()
while len(os.listdir("/proc/self/task")) > 1:
    os.sched_yield()  # the system's thread ends a moment after Python's
run(lambda p: print_each(p, ["without:"], how))
""",
    )
    assert printed == ["with a thread: anew", "without: forked"]


def test_classes_of_the_script_are_the_same_in_values_and_in_functions(tmp_path: Path) -> None:
    printed = script(
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
    assert printed == ["(0, True, True)", "(1, True, True)", "(2, True, True)"]


def test_open_files_of_the_client_cannot_be_reached_and_stay_intact(tmp_path: Path) -> None:
    printed = script(
        tmp_path,
        """
ours, theirs = socket.socketpair()
number = theirs.fileno()

def reach(value):
    try:
        os.write(number, b"x")
    except OSError as error:
        return error.strerror

run(lambda p: print_each(p, [1], reach))
ours.setblocking(False)
theirs.close()
print(ours.recv(1))
""",
    )
    assert printed == ["Bad file descriptor", "b''"]


def test_functions_print_to_stdout_even_if_the_script_has_replaced_it(tmp_path: Path) -> None:
    printed = script(
        tmp_path,
        """
sys.stdout = open("elsewhere", "w")
run(lambda p: print_each(p, ["printed"], str))
print("by the script")
""",
    )
    assert printed == ["printed"]
    assert (tmp_path / "elsewhere").read_text() == "by the script\n"


def test_buffered_output_and_exit_handlers_of_the_script_run_once(tmp_path: Path) -> None:
    printed = script(
        tmp_path,
        """
import atexit
atexit.register(print, "the end")
signal.signal(signal.SIGTERM, lambda *_: print("handled"))
print("before", end="")
run(lambda p: print_each(p, [1], lambda value: signal.getsignal(signal.SIGTERM) == signal.SIG_DFL))
print(" after")
""",
    )
    assert printed == sorted(["beforeTrue", " after", "the end"])


def test_the_death_of_a_forked_job_is_reported(tmp_path: Path) -> None:
    printed = script(
        tmp_path,
        """
try:
    run(lambda p: p | tg.Create([1]) | tg.Map(lambda value: os.kill(os.getppid(), signal.SIGKILL)))
except tg.RunError as error:
    print(error)
""",
    )
    assert printed[-1] == "the job's process has died (killed by SIGKILL), and its workers with it"


def test_a_script_that_ignores_sigchld_still_learns_that_its_job_has_ended(tmp_path: Path) -> None:
    printed = script(
        tmp_path,
        """
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
run(lambda p: print_each(p, [1, 2], lambda value: value * 2))
""",
    )
    assert printed == ["2", "4"]
