"""Traces: a run recorded on the direct runner, drawn as event time against processing time."""
