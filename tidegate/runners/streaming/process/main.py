"""The composition root: it assembles a job's process from a coordinator, workers and the loop that drives them.

`main` is the entry point of a new process, `run_job` that of a forked one. No other module in `process` depends on the
coordinator or the worker: both are passed in.
"""

from __future__ import annotations

import gc
import os
import pickle
import signal
import socket
import sys
import traceback
from types import ModuleType

from tidegate.runners.engine.errors.transport import packed
from tidegate.runners.engine.factory import load_operators
from tidegate.runners.engine.sinks.writer import remove_output
from tidegate.runners.streaming.checkpoint.epoch_fencing import open_job
from tidegate.runners.streaming.coordinator.coordinator import Coordinator
from tidegate.runners.streaming.model.exit_status import one_line
from tidegate.runners.streaming.model.job_spec import Job
from tidegate.runners.streaming.network.framing import CONTROL, Link, WireError, unpickled
from tidegate.runners.streaming.process.fork_server import serve_forks
from tidegate.runners.streaming.process.job_process import JobProcess
from tidegate.runners.streaming.process.run_directory import run_directory
from tidegate.runners.streaming.protocol import coordinator_io
from tidegate.runners.streaming.protocol.client_messages import Submit
from tidegate.runners.streaming.worker.worker import Worker
from tidegate.sdk.errors import RunError, TidegateError
from tidegate.sdk.portable.model import Write
from tidegate.sdk.secrets.registry import install_secrets


def main(descriptor: int) -> None:
    """Run a job's process; `descriptor` is its end of the socket to its client."""
    gc.disable()  # everything allocated before the workers are forked stays
    load_operators()
    sys.modules["__main__"] = ModuleType("__main__")  # for the classes of the author's script
    client = Link(socket.socket(fileno=descriptor))
    try:
        submitted = first_message(client)
    except WireError as error:
        _report_failure(client, error)
        return
    if submitted is not None:
        run_job(client, submitted)


def run_job(client: Link, submitted: Submit) -> None:
    """Run a job until it is over, and report to its client. Garbage collection skips everything allocated before."""
    signal.pthread_sigmask(signal.SIG_UNBLOCK, (signal.SIGINT, signal.SIGTERM))  # blocked by the client while it forked
    gc.freeze()
    gc.enable()
    install_secrets(dict(submitted.secrets))
    try:
        with run_directory(submitted.directory) as directory:
            opened = open_job(submitted.job, directory, f"process {os.getpid()} of {socket.gethostname()}")
            for note in opened.notes:
                client.post(CONTROL, [pickle.dumps(coordinator_io.Report("created", note), 5)])
            if opened.over is not None:  # an earlier process has finished the job
                _remove_late_output(opened.job, client)
                for message in (coordinator_io.Progress((), opened.over), coordinator_io.Finish("finished")):
                    client.post(CONTROL, [pickle.dumps(message, 5)])
                client.wait_until_sent()
                return
            coordinator = Coordinator(opened.job, opened.resume, opened.epoch, opened.first, opened.leftovers)
            JobProcess(opened, directory, coordinator, client, Worker).run()
    except Exception as error:
        _report_failure(client, error)


def serve(descriptor: int) -> None:
    """Run a fork server; `descriptor` is its end of the socket to its client."""
    load_operators()
    serve_forks(descriptor, main)


def first_message(client: Link) -> Submit | None:
    """The client's first message; None if the client has left. WireError if it is not a submission."""
    while not client.closed:
        client.wait(None)
        for kind, body, _ in client.receive():
            submitted: Submit = unpickled(kind, body, Submit)
            return submitted
    return None


def _remove_late_output(job: Job, client: Link) -> None:
    """Remove output that earlier processes, which had been declared dead, wrote after the job finished."""
    for step in job.plan.steps:
        node = step.tail
        if isinstance(node, Write) and (error := remove_output(node, job.output_runs(job.epoch))) is not None:
            note = f"late output of an earlier process can't be removed: {one_line(error)}"
            client.post(CONTROL, [pickle.dumps(coordinator_io.Report("created", note), 5)])


def _report_failure(client: Link, error: Exception) -> None:
    client.post(CONTROL, [pickle.dumps(coordinator_io.Finish("failed", packed(_as_tidegate_error(error))), 5)])
    client.wait_until_sent()


def _as_tidegate_error(error: Exception) -> TidegateError:
    if isinstance(error, TidegateError):
        return error
    wrapped = RunError(f"the job's process failed: {type(error).__name__}: {error}")
    wrapped.add_note("".join(traceback.format_exception(error)))
    return wrapped
