"""What a session must be set to, so that Spark computes relations as every other runner does."""

from __future__ import annotations

from typing import Any, Final

from tidegate.sdk.errors import OptionsError

ANSI: Final = "spark.sql.ansi.enabled"
TIME_ZONE: Final = "spark.sql.session.timeZone"

REQUIRED: Final = {ANSI: "true", TIME_ZONE: "UTC"}
"""The settings of sessions that the runner creates."""

_UTC: Final = frozenset({"utc", "etc/utc", "gmt", "etc/gmt", "z", "zulu", "etc/zulu", "utc0", "+00:00", "gmt0", "uct"})


def require_settings(session: Any, steps: str) -> None:
    """Raise OptionsError, naming the setting, if a session would compute relations in another way. `steps` are named in
    the message."""
    ansi, zone = session.conf.get(ANSI, "true"), session.conf.get(TIME_ZONE, "UTC")
    if str(ansi).lower() != "true":
        _refuse(ANSI, ansi, "true", "overflows and divisions by 0 would not be errors", steps)
    if str(zone).lower() not in _UTC:
        _refuse(TIME_ZONE, zone, "UTC", "dates and times would be those of another time zone", steps)


def _refuse(name: str, value: str, wanted: str, why: str, steps: str) -> None:
    raise OptionsError(
        f"the Spark session has {name}={value}, so Spark would compute {steps} with another result: {why}. Set it, as "
        f"in spark.conf.set({name!r}, {wanted!r}), or let the workers compute the steps: --spark_native off"
    )
