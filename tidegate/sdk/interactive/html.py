"""The HTML that a notebook shows for pipelines, collections and tables."""

from __future__ import annotations

from base64 import b64encode
from html import escape
from typing import Any

from tidegate.sdk.drawing.graph import collection_facts, graph_of
from tidegate.sdk.interactive.table import Table
from tidegate.sdk.notebook import html_table
from tidegate.sdk.pipeline import PCollection, Pipeline


def pipeline_html(pipeline: Pipeline) -> str:
    """The pipeline's graph, or its repr if it has no steps."""
    from tidegate.sdk.drawing.svg import svg

    portable = pipeline.portable()
    if not portable.nodes:
        return f"<code>{escape(repr(pipeline))}</code>"
    # As an image, so that its styles and the notebook's don't affect each other.
    picture = b64encode(svg(graph_of(portable)).encode()).decode()
    return (
        f'<div><code>{escape(repr(pipeline))}</code><br><img style="max-width: 100%" '
        f'alt="{escape(portable.name)}" src="data:image/svg+xml;base64,{picture}"></div>'
    )


def collection_html(pcoll: PCollection[Any]) -> str:
    """The properties of a collection, and how to see its elements."""
    facts = [("collection", pcoll.id), *collection_facts(pcoll.as_data())]
    return html_table((), facts, "its elements: collect(), head(n) or tg.show(…)")


def table_html(table: Table) -> str:
    """A collection's first elements as an HTML table."""
    return html_table(table.columns, table.rows, f"{table.title}: {table.caption}")
