"""Run the tests of SQL with each kind of sqlglot that the extra `sql` allows, and with Ibis.

`make sqlglot-versions` runs it. Each version gets an environment of its own under build/sqlglot, which sees everything
else that is installed beside the Python that runs this.
"""

from __future__ import annotations

import subprocess
import sys
import sysconfig
import tomllib
import venv
from pathlib import Path

from packaging.requirements import Requirement

ROOT = Path(__file__).resolve().parents[3]
TESTS = ("tests/sql", "tests/cli/test_sql.py")


def requirement() -> Requirement:
    """What the extra `sql` asks for."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return next(each for each in map(Requirement, project["optional-dependencies"]["sql"]) if each.name == "sqlglot")


def variants() -> dict[str, str]:
    """What to install, by the name of the variant."""
    wanted = requirement()
    (lowest,) = (each.version for each in wanted.specifier if each.operator == ">=")
    return {
        "lowest": f"sqlglot=={lowest}",
        "newest": str(wanted),
        "compiled": f"sqlglot[c]{wanted.specifier}",
        "with Ibis": f"{wanted} ibis-framework>=12",
    }


def python_with(name: str, package: str) -> Path:
    """The Python of an environment with this sqlglot in front of what is installed here."""
    folder = ROOT / "build" / "sqlglot" / name.replace(" ", "-")
    venv.create(folder, with_pip=True, clear=True)
    python = folder / "bin" / "python"
    subprocess.run([python, "-m", "pip", "install", "--quiet", *package.split()], check=True)
    purelib = subprocess.run(
        [python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"],
        check=True,
        capture_output=True,
        text=True,
    ).stdout.strip()
    # Paths of a .pth file come behind the environment's own packages.
    Path(purelib, "others.pth").write_text(f"{sysconfig.get_path('purelib')}\n{ROOT}\n")
    return python


def main() -> int:
    """The number of variants with which a test fails."""
    failed = 0
    for name, package in variants().items():
        python = python_with(name, package)
        shown = "import sqlglot; print(sqlglot.__version__, sqlglot.tokens.__file__)"
        print(f"==> {name}: {package}", flush=True)
        subprocess.run([python, "-c", shown], check=True)
        failed += subprocess.run([python, "-m", "pytest", "-q", *TESTS], cwd=ROOT, check=False).returncode != 0
    return failed


if __name__ == "__main__":
    sys.exit(main())
