"""The packages that formats need. They are imported only where they are used."""

from __future__ import annotations

from importlib import import_module

from tidegate.sdk.errors import BuildError


def need_pyarrow(of: str) -> None:
    """Raise BuildError, naming the transform `of` and the extra to install, if pyarrow is missing."""
    _need("pyarrow", of)


def need_fastavro(of: str) -> None:
    """Raise BuildError, naming the transform `of` and the extra to install, if fastavro is missing."""
    _need("fastavro", of)


def _need(module: str, of: str) -> None:
    try:
        import_module(module)
    except ImportError:
        raise BuildError(f"{of} needs the package {module}: pip install 'tidegate[formats]'") from None
