"""Calls out of a pipeline: AsyncMap, LookupJoin, and how often and how long results are tried for and cached."""
