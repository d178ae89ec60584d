"""The path that authors have imported sinks from; they are in `tidegate.sdk.connectors.sinks`."""

from tidegate.sdk.connectors.sinks import Attempt, Committable, Delivery, Sink, in_order

__all__ = ["Attempt", "Committable", "Delivery", "Sink", "in_order"]
