"""The path that authors have imported sources from; they are in `tidegate.sdk.connectors.sources`."""

from tidegate.sdk.connectors.sources import Batch, Position, Reader, SimpleSource, Source, Split

__all__ = ["Batch", "Position", "Reader", "SimpleSource", "Source", "Split"]
