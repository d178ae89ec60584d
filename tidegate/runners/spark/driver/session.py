"""The Spark session: an existing one as it is, else one made here, kept for later runs and quiet."""

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

from tidegate.runners.spark.driver.progress import without_py4j
from tidegate.runners.spark.driver.worker_env import ENVIRONMENT, packages_in
from tidegate.runners.spark.plan.failures import gist
from tidegate.runners.spark.worker import daemon
from tidegate.sdk.errors import OptionsError, TidegateError, UnsupportedError

if TYPE_CHECKING:
    from tidegate.runners.spark.plan.options import SparkOptions

LEAST_SPARK: Final = (4, 1)
LEAST_JAVA: Final = 17


_ALWAYS: Final = ("pyspark", "pyarrow", "pandas")
_OF_CONNECT: Final = ("grpcio", "grpcio-status", "googleapis-common-protos")


def missing(*, java: bool = True, connect: bool = False) -> list[str]:
    """What has to be installed before Spark can run, in words. `java`: a JVM is to be started; `connect`: a server that
    has one is to be asked.
    """
    lacks = [_package(name, "spark") for name in _ALWAYS]
    lacks += [_package(name, "connect") for name in _OF_CONNECT if connect]
    return [text for text in (*lacks, _java() if java else "") if text]


def require(*, java: bool = True, connect: bool = False) -> None:
    """Raise UnsupportedError, saying what to install, where Spark can't run."""
    lacks = missing(java=java, connect=connect)
    if lacks:
        raise UnsupportedError("the spark runner can't run here: " + "; ".join(lacks))


def _package(name: str, extra: str) -> str:
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
    """The version of a package; "" if it is not there. `spark-submit` brings PySpark without installing it."""
    from importlib import import_module, metadata

    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        try:
            return str(import_module(name).__version__)
        except (ImportError, AttributeError):
            return ""


def _java() -> str:
    home = os.environ.get("JAVA_HOME")
    java = os.path.join(home, "bin", "java") if home else shutil.which("java")
    if java is None or not os.path.exists(java):
        return f"it needs Java {LEAST_JAVA} or newer, and finds no java: install a JDK, or set JAVA_HOME"
    told = subprocess.run([java, "-version"], capture_output=True, text=True, check=False).stderr
    number = told.partition('version "')[2].partition('"')[0].split(".")[0]
    if number.isdigit() and int(number) < LEAST_JAVA:
        return f"it needs Java {LEAST_JAVA} or newer, and {java} is version {number}: set JAVA_HOME to a newer"
    return ""


def session(options: SparkOptions) -> Any:
    """The session that is there, classic or Connect, or a new one that later runs with the same flags use again.

    OptionsError if Spark does not start with these flags, or if there is no server; UnsupportedError for what it lacks.
    """
    with _making:
        return _session(options)


_making: Final = threading.Lock()


def _session(options: SparkOptions) -> Any:
    wanted = (
        options.spark_remote or options.spark_master,
        tuple(options.spark_conf),
        options.worker_python,
        options.spark_archive,
    )
    if _made and _made[0][0] == wanted:
        if _alive(_made[0][1]):
            return _made[0][1]
        _made.clear()
    found = _found() if "pyspark" in sys.modules and not options.spark_remote else None
    require(java=not options.spark_remote and found is None, connect=bool(options.spark_remote))
    if options.spark_archive and "://" not in options.spark_archive and not os.path.isfile(options.spark_archive):
        raise OptionsError(f"--spark_archive {options.spark_archive} is no file; tidegate package makes one")
    if found is not None and not (_made and found is _made[0][1]):
        return found
    stop()
    if options.spark_remote:
        if not options.spark_remote.startswith("sc://"):
            raise OptionsError(f"--spark_remote takes a URL such as sc://host:15002, not {options.spark_remote!r}")
        if not any(name in os.environ or name.upper() in os.environ for name in _PROXIES):
            check_there("--spark_remote", options.spark_remote, _CONNECT_PORT)
        with _starting(f"--spark_remote {options.spark_remote}"):
            made = _remote(options)
    else:
        made = _classic(options)
    _made.append((wanted, made))
    return made


def checked(spark: Any) -> Any:
    """A session whose Spark is new enough, else UnsupportedError: a server's may be older than the PySpark here."""
    if _numbers(spark.version) < LEAST_SPARK:
        least = ".".join(map(str, LEAST_SPARK))
        raise UnsupportedError(
            f"the spark runner can't run on Spark {spark.version}, which lacks repartitionById: it takes Spark {least} "
            "or newer"
        )
    return spark


_made: Final[list[tuple[tuple[Any, ...], Any]]] = []
"""The session made here, if any, and the flags it was made for."""


_socket_folders: Final[list[tempfile.TemporaryDirectory[str]]] = []
_LONGEST: Final = 60
"""How long the name of a folder may be so that a socket in it can have a name."""


@atexit.register
def stop() -> None:
    """Stop the session made here, if any."""
    while _made:
        _, made = _made.pop()
        with without_py4j(), suppress(Exception):  # it is over, or its JVM is
            made.stop()
    while _socket_folders:
        _socket_folders.pop().cleanup()


def _with_sockets(given: dict[str, str]) -> dict[str, str]:
    """Settings with which Spark talks to its Python workers over Unix sockets, which nobody else can open: behind TCP's
    delays each small stage would wait 40 ms for its input. Those that are given stay as they are.

    The workers then come from a daemon that says nothing of connections which Spark has closed.
    """
    if os.name != "posix":
        return given
    folder = tempfile.TemporaryDirectory(prefix="tidegate-", ignore_cleanup_errors=True)
    if len(os.fsencode(folder.name)) > _LONGEST:
        folder.cleanup()
        return given
    _socket_folders.append(folder)
    prefix = "spark.python.unix.domain.socket"
    settings = {f"{prefix}.enabled": "true", f"{prefix}.dir": folder.name} | given
    if _DAEMON not in given:
        modules = os.path.join(folder.name, "modules")
        os.mkdir(modules)
        shutil.copy(daemon.__file__, os.path.join(modules, "tidegate_daemon.py"))
        settings[_DAEMON] = "tidegate_daemon"
        settings[_MODULES] = os.pathsep.join(filter(None, (modules, given.get(_MODULES))))
    return settings


_DAEMON: Final = "spark.python.daemon.module"
_MODULES: Final = "spark.executorEnv.PYTHONPATH"
"""Where workers look for modules first."""


def _alive(spark: Any) -> bool:
    context = getattr(spark, "_sc", None)
    return context is None or context._jsc is not None


def _found() -> Any:
    """A session of the author's, if there is one."""
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    if SparkContext._active_spark_context is not None:
        return SparkSession.builder.getOrCreate()
    if "pyspark.sql.connect.session" in sys.modules:
        from pyspark.sql.connect.session import SparkSession as RemoteSession

        return RemoteSession.getActiveSession() or RemoteSession._get_default_session()
    return None


def _remote(options: SparkOptions) -> Any:
    from pyspark.sql.connect.session import SparkSession

    endpoint = options.spark_remote or ""
    builder: Any = SparkSession.builder.remote(endpoint)
    python = options.worker_python or (f"{ENVIRONMENT}/bin/python" if options.spark_archive else None)
    if python is not None:
        builder = builder.config("spark.sql.execution.pyspark.python", python)
    for name, value in settings_of(options):
        builder = builder.config(name, value)
    return builder.create()


def _classic(options: SparkOptions) -> Any:
    from pyspark.sql import SparkSession

    submitted = _submitted()
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
    }
    given = defaults | submitted | dict(settings_of(options))
    for name, value in (_with_sockets(given) if local else given).items():
        builder = builder.config(name, value)
    python = options.worker_python or (sys.executable if local else None)
    if local and python and shutil.which(python) is None:
        raise OptionsError(f"--worker_python {python}: there is no such interpreter")
    if options.spark_archive:
        if local:
            raise OptionsError("--spark_archive is for the workers of a cluster: a local master runs them here")
        builder = builder.config("spark.archives", f"{options.spark_archive}#{ENVIRONMENT}")
        if options.worker_python:  # which needs PyArrow from the archive before any code of ours runs
            builder = builder.config("spark.executorEnv.PYTHONPATH", *packages_in(options.spark_archive))
        python = options.worker_python or f"./{ENVIRONMENT}/bin/python"
    if master.startswith("spark://"):
        check_there("--spark_master", master)
    with _starting(f"--spark_master {master}"), _without_noise(), _interpreter(python):
        made = builder.getOrCreate()
        made.conf.get("spark.master")  # which looks at all settings
        return made


@contextmanager
def _starting(flag: str) -> Iterator[None]:
    """What Spark raises inside, as an error of the flags that it was started with. Nothing is left half started."""
    try:
        yield
    except TidegateError:
        raise
    except Exception as error:
        from pyspark import SparkContext

        if SparkContext._active_spark_context is not None:
            SparkContext._active_spark_context.stop()
        said = str(error)
        if "JAVA_GATEWAY_EXITED" in said:
            said = "its Java has ended, and said why on standard error"
        elif "stopped SparkContext" in said:
            said = "the cluster does not take the application; --spark_conf spark.log.level=WARN tells more"
        raise OptionsError(f"Spark does not start with {flag} and its settings: {gist(said)}") from error


def check_there(flag: str, url: str, port: int | None = None) -> None:
    """OptionsError if no server listens at a URL, or at any of several `host:port`: Spark's clients would try for
    minutes before they said so, and not in so many words.
    """
    import socket
    from urllib.parse import urlsplit

    scheme, _, hosts = url.partition("://")
    said = ""
    for host in hosts.split(","):
        try:
            parts = urlsplit(f"//{host}")
            where = parts.hostname or "", parts.port or port or 0
        except ValueError:
            where = "", 0
        if not all(where):
            raise OptionsError(f"{flag} takes a URL such as {scheme}://host:{port or 7077}, not {url!r}")
        try:
            socket.create_connection(where, timeout=_PATIENCE).close()
        except OSError as error:
            said = error.strerror or str(error)
        else:
            return
    raise OptionsError(f"nothing answers at {flag} {url}: {said}")


_CONNECT_PORT: Final = 15002
_PATIENCE: Final = 10.0
"""Seconds."""
_PROXIES: Final = ("grpc_proxy", "https_proxy", "http_proxy")
"""By which a Connect server may be reached though it can't be from here."""


def _submitted() -> dict[str, str]:
    """What `spark-submit` was told, if it has started this script: it comes before the flags, which have defaults."""
    if "PYSPARK_GATEWAY_PORT" not in os.environ:
        return {}
    from pyspark import SparkConf, SparkContext

    SparkContext._ensure_initialized()  # connects to that JVM: without it, a SparkConf knows nothing
    return dict(SparkConf().getAll())


@contextmanager
def _interpreter(python: str | None) -> Iterator[None]:
    """The workers' interpreter, which a session reads off the environment: else whatever `python3` is on PATH."""
    before = os.environ.get("PYSPARK_PYTHON")
    if python:
        os.environ["PYSPARK_PYTHON"] = python
    try:
        yield
    finally:
        if python:
            del os.environ["PYSPARK_PYTHON"]
        if before is not None:
            os.environ["PYSPARK_PYTHON"] = before


def settings_of(options: SparkOptions) -> Iterator[tuple[str, str]]:
    """`--spark_conf`, pair by pair; OptionsError for one that is none."""
    for pair in options.spark_conf:
        name, equals, value = pair.partition("=")
        if not equals or not name:
            raise OptionsError(f"--spark_conf takes name=value, not {pair!r}")
        yield name, value


def is_local(master: str) -> bool:
    """Whether Spark runs in this process's JVM, on this machine."""
    return master == "local" or master.startswith("local[")


def runs_here(spark: Any) -> bool:
    """Whether a session's workers are this machine's, with the packages of this interpreter."""
    if not hasattr(spark, "_sc") or not is_local(spark.conf.get("spark.master", "")):
        return False
    python = shutil.which(spark._sc.pythonExec)
    return python is not None and os.path.dirname(python) == os.path.dirname(sys.executable)


_NOISE: Final = re.compile(
    rb"WARNING: Using incubator modules|WARNING: package sun\.|Using Spark's default log4j|Setting default log level"
    rb"|To adjust logging level|Setting Spark log level|[\d/]+ [\d:]+ (INFO|WARN) "
    rb"|\s+at [\w.$/<>]+[(]|\s+\.\.\. \d+ more"
)


@contextmanager
def _without_noise() -> Iterator[None]:
    """Keep what a JVM says as it starts off standard error. All else that it and its workers say goes through."""
    sys.stderr.flush()
    read, write = os.pipe()
    kept = os.dup(2)
    os.dup2(write, 2)
    os.close(write)
    threading.Thread(target=_pump, args=(read, kept), name="tidegate-spark-stderr", daemon=True).start()
    try:
        yield
    finally:
        os.dup2(kept, 2)


def _pump(read: int, to: int) -> None:
    with open(read, "rb", buffering=0) as lines:
        rest = b""
        while data := lines.read(65536):
            *whole, rest = (rest + data).split(b"\n")
            for line in whole:
                if not _NOISE.match(line):
                    os.write(to, line + b"\n")
    if rest:
        os.write(to, rest)
