"""The interfaces of sources and sinks."""
