"""Rank the modules of Python's standard library by the imports between them, a real graph of links.

    tidegate run examples/module_ranks.py --output build/modules
    python examples/module_ranks.py --output build/modules

writes lines such as `0.0507 sys, 0 imports, with 258 others` to one file, the highest rank first: the PageRank of a
module, how many others it imports, and with how many it is connected. `--input` reads other modules. It needs the extra
`graph`.
"""

from __future__ import annotations

import ast
import sysconfig
from collections.abc import Iterator
from pathlib import PurePath

from pydantic import Field

import tidegate as tg
from tidegate.graph import Graph

Import = tuple[str, str]


class ModuleOptions(tg.PipelineOptions):
    """The modules, and the file to write."""

    input: str = Field("", description="the modules: a pattern; without it, those of the standard library")
    output: str = Field(description="the prefix of the file to write")
    top: int = Field(50, description="how many modules to write")


def imports(file: tg.io.ReadableFile) -> Iterator[Import]:
    """The imports of a file: its own module, each with one that it imports, packages by their first names."""
    module = PurePath(file.path).stem
    found = set()
    for node in ast.walk(ast.parse(file.read())):
        match node:
            case ast.Import(names=names):
                found |= {name.name.partition(".")[0] for name in names}
            case ast.ImportFrom(module=str(name), level=0):
                found.add(name.partition(".")[0])
            case _:
                pass
    yield from ((module, name) for name in sorted(found - {module}))


def as_text(best: list[tuple[float, str, int, int]]) -> Iterator[str]:
    """A line for each module."""
    for rank, module, imported, connected in best:
        yield f"{rank:.4f} {module}, {imported} imports, with {connected} others"


def pipeline(options: ModuleOptions) -> tg.Pipeline:
    """Rank modules by their imports."""
    p = tg.Pipeline(options=options, name="module ranks")
    files = p | tg.io.MatchFiles(options.input or f"{sysconfig.get_path('stdlib')}/*.py") | tg.io.ReadMatches()
    links = Graph(files | tg.FlatMap(imports))
    components = links.connected_components()
    sizes = components | tg.KvSwap() | tg.CombinePerKey(len)
    connected = components | "component" >> tg.KvSwap() | tg.Join.inner(sizes) | tg.Values()
    facts = {
        "rank": links.pagerank(),
        "imports": links.out_degrees(),
        "connected": connected,
    }
    (
        facts
        | tg.CoGroupByKey()
        | tg.Map(lambda group: (group[1]["rank"][0], group[0], group[1]["imports"][0], group[1]["connected"][0] - 1))
        | tg.combiners.Top.Of(options.top)
        | tg.FlatMap(as_text)
        | tg.io.WriteToText(options.output, num_shards=1)
    )
    return p


if __name__ == "__main__":
    pipeline(ModuleOptions.from_args()).run().wait_until_finish()
