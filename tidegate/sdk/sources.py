"""An older import path of `tidegate.sdk.connectors.sources`, kept for authors who use it."""

from tidegate.sdk.connectors.sources import Batch, Position, Reader, SimpleSource, Source, Split

__all__ = ["Batch", "Position", "Reader", "SimpleSource", "Source", "Split"]
