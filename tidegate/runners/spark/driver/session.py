"""The Spark session of a run: the program's own, used unchanged, or a new one, which later runs use again."""

from __future__ import annotations

import atexit
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, Final

from tidegate.runners.spark.catalyst.session import REQUIRED
from tidegate.runners.spark.driver.progress import no_logged_exceptions
from tidegate.runners.spark.driver.worker_env import ENVIRONMENT, packages_in
from tidegate.runners.spark.plan.failures import interrupted, without_trace
from tidegate.runners.spark.worker import daemon, site
from tidegate.sdk.errors import OptionsError, TidegateError, UnsupportedError

if TYPE_CHECKING:
    from tidegate.runners.spark.plan.options import SparkOptions

LEAST_SPARK: Final = (4, 1)
LEAST_JAVA: Final = 17


_ALWAYS: Final = ("pyspark", "pyarrow", "pandas")
_OF_CONNECT: Final = ("grpcio", "grpcio-status", "googleapis-common-protos")
_OF_STREAMS: Final = ("protobuf",)
"""With which PySpark's workers ask for the state of a stream; without it they end and Spark does not say why."""


def missing(*, java: bool = True, connect: bool = False, stream: bool = False) -> list[str]:
    """Describe what must be installed before Spark can run: for starting a JVM if `java`, for Spark Connect if
    `connect`, and for unbounded pipelines if `stream`."""
    problems = [_package_problem(name, "spark") for name in (*_ALWAYS, *(_OF_STREAMS if stream else ()))]
    problems += [_package_problem(name, "connect") for name in _OF_CONNECT if connect]
    return [text for text in (*problems, _java_problem() if java else "") if text]


def require_installed(*, java: bool = True, connect: bool = False, stream: bool = False) -> None:
    """Raise UnsupportedError, saying what to install, if Spark can't run."""
    problems = missing(java=java, connect=connect, stream=stream)
    if problems:
        raise UnsupportedError("the spark runner can't run here: " + "; ".join(problems))


def _package_problem(name: str, extra: str) -> str:
    version = _version(name)
    if not version:
        return f"{name} is not installed: pip install 'tidegate[{extra}]'"
    numbers = _numbers(version)
    if name == "pyspark" and numbers < LEAST_SPARK:
        return f"PySpark {version} lacks repartitionById, 4.1 has it: pip install -U 'tidegate[spark]'"
    if name == "pandas" and numbers >= (3, 0):
        return f"PySpark does not work with pandas {version}: pip install 'pandas<3'"
    return ""


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version)[:2])


def _version(name: str) -> str:
    """The version of a package; "" if it is missing. `spark-submit` provides PySpark without installing it."""
    from importlib import import_module, metadata

    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        try:
            return str(import_module(name).__version__)
        except (ImportError, AttributeError):
            return ""


def _java_problem() -> str:
    home = os.environ.get("JAVA_HOME")
    java = os.path.join(home, "bin", "java") if home else shutil.which("java")
    if java is None or not os.path.exists(java):
        return f"it needs Java {LEAST_JAVA} or newer, and finds no java: install a JDK, or set JAVA_HOME"
    output = subprocess.run([java, "-version"], capture_output=True, text=True, check=False).stderr
    number = output.partition('version "')[2].partition('"')[0].split(".")[0]
    if number.isdigit() and int(number) < LEAST_JAVA:
        return f"it needs Java {LEAST_JAVA} or newer, and {java} is version {number}: set JAVA_HOME to a newer one"
    return ""


def get_session(options: SparkOptions) -> Any:
    """The program's active session, classic or Connect, or a new one, which later runs with the same flags use again.

    Raises OptionsError if Spark does not start with these flags or the server can't be reached, and UnsupportedError if
    something must be installed first.
    """
    with _creating:
        return _get_session(options)


_creating: Final = threading.Lock()


def _get_session(options: SparkOptions) -> Any:
    flags = (
        options.spark_remote or options.spark_master,
        tuple(options.spark_conf),
        options.worker_python,
        options.spark_archive,
    )
    if _created and _created[0][0] == flags:
        if _is_alive(_created[0][1]):
            return _created[0][1]
        _created.clear()
    active = _author_session() if "pyspark" in sys.modules and not options.spark_remote else None
    require_installed(java=not options.spark_remote and active is None, connect=bool(options.spark_remote))
    if options.spark_archive and "://" not in options.spark_archive and not os.path.isfile(options.spark_archive):
        raise OptionsError(f"--spark_archive {options.spark_archive} is not a file; tidegate package makes one")
    if active is not None and not (_created and active is _created[0][1]):
        return active
    _stop_session()
    if options.spark_remote:
        if not options.spark_remote.startswith("sc://"):
            raise OptionsError(f"--spark_remote takes a URL such as sc://host:15002, not {options.spark_remote!r}")
        if not any(name in os.environ or name.upper() in os.environ for name in _PROXIES):
            check_reachable("--spark_remote", options.spark_remote, _CONNECT_PORT)
        with _starting(f"--spark_remote {options.spark_remote}"):
            created = _connect_session(options)
    else:
        created = _classic_session(options)
    _created.append((flags, created))
    return created


def require_supported(spark: Any) -> Any:
    """The session itself, or UnsupportedError if its Spark is too old: a server may be older than PySpark here."""
    if _numbers(spark.version) < LEAST_SPARK:
        least = ".".join(map(str, LEAST_SPARK))
        raise UnsupportedError(
            f"the spark runner can't run on Spark {spark.version}, which lacks repartitionById: it needs Spark {least} "
            "or newer"
        )
    return spark


_created: Final[list[tuple[tuple[Any, ...], Any]]] = []
"""The session created here, if any, and the flags for which it was."""


_folders: Final[list[tempfile.TemporaryDirectory[str]]] = []
"""Those of the session's sockets and modules."""
_LONGEST: Final = 60
"""The longest path of a folder in which sockets can be created: the path of a Unix socket is limited to 108 bytes."""


@atexit.register
def stop() -> None:
    """Stop the session created here, if any, and remove its folders."""
    _stop_session()
    while _folders:
        _folders.pop().cleanup()


def _stop_session() -> None:
    """Stop the session created here, if any. The next one has the same JVM, which goes on using the first folder."""
    while _created:
        _, created = _created.pop()
        with no_logged_exceptions(), suppress(Exception):  # the session has been stopped, or its JVM has died
            created.stop()


def with_local_workers(
    conf: dict[str, str], folders: list[tempfile.TemporaryDirectory[str]] = _folders
) -> dict[str, str]:
    """Add the settings of a local master's Python workers. Existing settings take precedence. The folder of their
    sockets and modules, which has to outlive the session, is added to `folders`.

    They are connected to Spark by Unix sockets that only this user can open: over TCP, delayed acknowledgements would
    cost each small stage 40 ms. They are forked by a daemon of ours, which does not print tracebacks when Spark closes
    a connection. All of Spark's Python processes import PySpark from where it is installed, which starts them sooner.
    """
    if os.name != "posix":
        return conf
    folder = tempfile.TemporaryDirectory(prefix="tidegate-", ignore_cleanup_errors=True)
    if len(os.fsencode(folder.name)) > _LONGEST:
        folder.cleanup()
        return conf
    folders.append(folder)
    prefix = "spark.python.unix.domain.socket"
    settings = {f"{prefix}.enabled": "true", f"{prefix}.dir": folder.name} | conf
    if _DAEMON not in conf:
        modules = os.path.join(folder.name, "modules")
        os.mkdir(modules)
        shutil.copy(daemon.__file__, os.path.join(modules, "tidegate_daemon.py"))
        shutil.copy(site.__file__, os.path.join(modules, "sitecustomize.py"))
        settings[_DAEMON] = "tidegate_daemon"
        settings[_MODULES] = os.pathsep.join(filter(None, (modules, conf.get(_MODULES))))
    return settings


_DAEMON: Final = "spark.python.daemon.module"
_MODULES: Final = "spark.executorEnv.PYTHONPATH"
"""The module path of the workers."""


def _is_alive(spark: Any) -> bool:
    context = getattr(spark, "_sc", None)
    return context is None or context._jsc is not None


def _author_session() -> Any:
    """The session that the user's program has created, if any."""
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    if SparkContext._active_spark_context is not None:
        return SparkSession.builder.getOrCreate()
    if "pyspark.sql.connect.session" in sys.modules:
        from pyspark.sql.connect.session import SparkSession as RemoteSession

        return RemoteSession.getActiveSession() or RemoteSession._get_default_session()
    return None


def _connect_session(options: SparkOptions) -> Any:
    from pyspark.sql.connect.session import SparkSession

    endpoint = options.spark_remote or ""
    builder: Any = SparkSession.builder.remote(endpoint)
    python = options.worker_python or (f"{ENVIRONMENT}/bin/python" if options.spark_archive else None)
    if python is not None:
        builder = builder.config("spark.sql.execution.pyspark.python", python)
    for name, value in (REQUIRED | dict(conf_pairs(options))).items():
        builder = builder.config(name, value)
    return builder.create()


def _classic_session(options: SparkOptions) -> Any:
    from pyspark.sql import SparkSession

    submitted = _spark_submit_conf()
    master = submitted.get("spark.master", options.spark_master)
    local = is_local(master)
    builder: Any = SparkSession.builder
    defaults = {
        "spark.master": master,
        "spark.app.name": "tidegate",
        "spark.ui.showConsoleProgress": "false",
        "spark.log.level": "OFF",
        "spark.ui.enabled": "false" if local else "true",
        "spark.sql.execution.pyspark.udf.faulthandler.enabled": "true",
        **REQUIRED,
    }
    conf = defaults | submitted | dict(conf_pairs(options))
    for name, value in (with_local_workers(conf) if local else conf).items():
        builder = builder.config(name, value)
    python = options.worker_python or (sys.executable if local else None)
    if local and python and shutil.which(python) is None:
        raise OptionsError(f"--worker_python {python}: there is no such interpreter")
    if options.spark_archive:
        if local:
            raise OptionsError("--spark_archive is for the workers of a cluster: a local master runs them here")
        builder = builder.config("spark.archives", f"{options.spark_archive}#{ENVIRONMENT}")
        if options.worker_python:  # this interpreter must import PyArrow from the archive before it runs our code
            builder = builder.config("spark.executorEnv.PYTHONPATH", *packages_in(options.spark_archive))
        python = options.worker_python or f"./{ENVIRONMENT}/bin/python"
    modules = _driver_modules()
    if master.startswith("spark://"):
        check_reachable("--spark_master", master)
    with (
        _starting(f"--spark_master {master}"),
        _without_noise(),
        no_logged_exceptions(),
        _variables(PYSPARK_PYTHON=python, PYTHONPATH=modules),
    ):
        created = builder.getOrCreate()
        created.conf.get("spark.master")  # validates all settings
    server = created.sparkContext._accumulatorServer
    server.handle_error = lambda *_: None  # which prints a traceback if the JVM dies; so does each call, in our words
    return created


@contextmanager
def _starting(flag: str) -> Iterator[None]:
    """Turn Spark's errors into OptionsErrors that name the flag, and stop a session that has started only in part."""
    try:
        yield
    except TidegateError:
        raise
    except Exception as error:
        from pyspark import SparkContext

        if interrupted(error):
            raise KeyboardInterrupt from error
        if SparkContext._active_spark_context is not None:
            SparkContext._active_spark_context.stop()
        message = str(error)
        if "JAVA_GATEWAY_EXITED" in message:
            message = "its Java process has ended; see its messages on standard error"
        elif "stopped SparkContext" in message:
            message = "the cluster rejected the application; for details add --spark_conf spark.log.level=WARN"
        raise OptionsError(f"Spark does not start with {flag} and its settings: {without_trace(message)}") from error


def check_reachable(flag: str, url: str, port: int | None = None) -> None:
    """Raise OptionsError if no server listens at a URL, or at any of its `host:port`s: Spark's clients would retry for
    minutes, and then fail with an unclear message.
    """
    import socket
    from urllib.parse import urlsplit

    scheme, _, hosts = url.partition("://")
    failure = ""
    for host in hosts.split(","):
        try:
            parts = urlsplit(f"//{host}")
            address = parts.hostname or "", parts.port or port or 0
        except ValueError:
            address = "", 0
        if not all(address):
            raise OptionsError(f"{flag} takes a URL such as {scheme}://host:{port or 7077}, not {url!r}")
        try:
            socket.create_connection(address, timeout=_CONNECT_TIMEOUT).close()
        except OSError as error:
            failure = error.strerror or str(error)
        else:
            return
    raise OptionsError(f"nothing answers at {flag} {url}: {failure}")


_CONNECT_PORT: Final = 15002
_CONNECT_TIMEOUT: Final = 10.0
"""Seconds."""
_PROXIES: Final = ("grpc_proxy", "https_proxy", "http_proxy")
"""Variables that name a proxy, through which a Connect server may be reachable although it is not directly."""


def _spark_submit_conf() -> dict[str, str]:
    """The settings of `spark-submit`, if it has started this script. They precede the flags, which have defaults."""
    if "PYSPARK_GATEWAY_PORT" not in os.environ:
        return {}
    from pyspark import SparkConf, SparkContext

    SparkContext._ensure_initialized()  # connects to the JVM of `spark-submit`, whose settings SparkConf reads
    return dict(SparkConf().getAll())


def _driver_modules() -> str:
    """The module path of the Python processes that Spark starts beside the driver, for streams: as local workers, these
    import PySpark from where it is installed. Some of them have the environment of the JVM alone."""
    folder = tempfile.TemporaryDirectory(prefix="tidegate-", ignore_cleanup_errors=True)
    _folders.append(folder)
    shutil.copy(site.__file__, os.path.join(folder.name, "sitecustomize.py"))
    return os.pathsep.join(filter(None, (folder.name, os.environ.get("PYTHONPATH"))))


@contextmanager
def _variables(**variables: str | None) -> Iterator[None]:
    """Set environment variables that a new session reads, where they are given. PYSPARK_PYTHON is the workers'
    interpreter; its default would be the `python3` on PATH."""
    given = {name: value for name, value in variables.items() if value}
    before = {name: os.environ.get(name) for name in given}
    os.environ.update(given)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def conf_pairs(options: SparkOptions) -> Iterator[tuple[str, str]]:
    """The names and values of `--spark_conf`; OptionsError for a flag that is not `name=value`."""
    for pair in options.spark_conf:
        name, equals, value = pair.partition("=")
        if not equals or not name:
            raise OptionsError(f"--spark_conf takes name=value, not {pair!r}")
        yield name, value


def is_local(master: str) -> bool:
    """Whether Spark runs its tasks on this machine, in the JVM that this process starts."""
    return master == "local" or master.startswith("local[")


def workers_are_local(spark: Any) -> bool:
    """Whether a session's workers run on this machine, with the packages of this interpreter."""
    if not hasattr(spark, "_sc") or not is_local(spark.conf.get("spark.master", "")):
        return False
    python = shutil.which(spark._sc.pythonExec)
    return python is not None and os.path.dirname(python) == os.path.dirname(sys.executable)


_NOISE: Final = re.compile(
    rb"WARNING: Using incubator modules|WARNING: package sun\.|Using Spark's default log4j|Setting default log level"
    rb"|To adjust logging level|Setting Spark log level|[\d/]+ [\d:]+ (INFO|WARN) "
    rb"|(Starting )?Streaming TransformWithStateInPandas Python worker"
    rb"|\s+at [\w.$/<>]+[(]|\s+\.\.\. \d+ more"
)


@contextmanager
def _without_noise() -> Iterator[None]:
    """Drop the messages that every JVM prints to standard error as it starts; its other output passes through, also
    later, as does that of its workers."""
    sys.stderr.flush()
    read, write = os.pipe()
    stderr = os.dup(2)
    os.dup2(write, 2)
    os.close(write)
    threading.Thread(target=_copy_lines, args=(read, stderr), name="tidegate-spark-stderr", daemon=True).start()
    try:
        yield
    finally:
        os.dup2(stderr, 2)


def _copy_lines(read: int, to: int) -> None:
    """Copy lines from one file descriptor to another, without noise."""
    with open(read, "rb", buffering=0) as source:
        rest = b""
        dropped = False
        while data := source.read(65536):
            *lines, rest = (rest + data).split(b"\n")
            for line in lines:
                if line or not dropped:  # some of the noise is followed by an empty line
                    dropped = _NOISE.match(line) is not None
                    if not dropped:
                        os.write(to, line + b"\n")
    if rest:
        os.write(to, rest)
