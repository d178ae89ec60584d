"""The packages that formats need, which are imported only where they are used."""

from __future__ import annotations

from importlib import import_module

from tidegate.sdk.errors import BuildError


def need_pyarrow(of: str) -> None:
    """BuildError, naming the extra to install, if pyarrow is missing; `of` needs it."""
    _need("pyarrow", of)


def need_fastavro(of: str) -> None:
    """BuildError, naming the extra to install, if fastavro is missing; `of` needs it."""
    _need("fastavro", of)


def _need(module: str, of: str) -> None:
    try:
        import_module(module)
    except ImportError:
        raise BuildError(f"{of} needs the package {module}: pip install 'tidegate[formats]'") from None
