"""The functions of `tidegate.sdk.interactive_hook.Interactive`, as one module."""

from tidegate.sdk.interactive.html import collection_html, pipeline_html
from tidegate.sdk.interactive.runs import collect, head

__all__ = ["collect", "collection_html", "head", "pipeline_html"]
