"""Tables for tests of queries in SQL."""
