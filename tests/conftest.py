"""What all tests share: how hypothesis looks for examples.

Under continuous integration (`CI` set) the examples are the same on every run, so that a red build is red again; at a
developer's desk they are new each time. Neither has a deadline: shared machines stall, and time is not what these tests
assert. `--hypothesis-profile` chooses by hand.
"""

from __future__ import annotations

import os

from hypothesis import settings

settings.register_profile("desk", deadline=None)
settings.register_profile("ci", deadline=None, derandomize=True, database=None, print_blob=True)
settings.load_profile("ci" if os.environ.get("CI") else "desk")
