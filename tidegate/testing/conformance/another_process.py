"""The program with which a check commits in a process that knows only the pickled sink and the stored committables."""

from __future__ import annotations

import base64
import json
import pickle
import sys

from tidegate.testing.conformance.writing import Stored


def main() -> None:
    """Make the commits that a request on stdin describes."""
    request = json.load(sys.stdin)
    sys.path[:] = request["path"]
    for commit in request["commits"]:
        sink = pickle.loads(base64.b64decode(commit["sink"]))
        for group in commit["groups"]:
            stored = [
                Stored(tuple(order), payload, tuple((name, base64.b64decode(data)) for name, data in files))
                for order, payload, files in group
            ]
            sink.commit(commit["run"], [each.restored() for each in stored], commit["checkpoint"])
