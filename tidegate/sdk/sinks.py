"""An older import path of `tidegate.sdk.connectors.sinks`, kept for authors who use it."""

from tidegate.sdk.connectors.sinks import Attempt, Committable, Delivery, Sink, in_order

__all__ = ["Attempt", "Committable", "Delivery", "Sink", "in_order"]
