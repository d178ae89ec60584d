"""`${NAME}` and `${file:…}` in the settings of connectors, and the redaction of what they refer to."""

from __future__ import annotations

from pathlib import Path

import pytest

import tidegate as tg
from tidegate.sdk.errors import BuildError, RunError
from tidegate.sdk.secrets.redaction import conceal, redacted
from tidegate.sdk.secrets.references import resolved


def test_every_reference_in_a_text_is_resolved(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIDE_KEY", "moon4tide")
    monkeypatch.setenv("TIDE_USER", "sun")
    assert resolved("a-${TIDE_USER}:${TIDE_KEY}@b-${TIDE_USER}") == "a-sun:moon4tide@b-sun"


def test_a_file_is_read_again_for_each_resolution(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("first-token\n")
    reference = f"Bearer ${{file:{file}}}"
    assert resolved(reference) == "Bearer first-token"
    file.write_text("second-token")
    assert resolved(reference) == "Bearer second-token"


def test_two_dollars_escape_a_brace() -> None:
    assert resolved("$${HOME} costs $5 {x}") == "${HOME} costs $5 {x}"


def test_a_variable_or_file_that_is_missing_is_named(tmp_path: Path) -> None:
    with pytest.raises(RunError, match=r"no environment variable NO_SUCH_TIDE: set it where the workers are started"):
        resolved("${NO_SUCH_TIDE}")
    with pytest.raises(RunError, match=r"the secret can't be read: No such file or directory"):
        resolved(f"${{file:{tmp_path}/none}}")


@pytest.mark.parametrize("text", ["${", "${}", "a ${not a name} b", "${file:relative}", "x${1A}"])
def test_a_malformed_reference_is_refused(text: str) -> None:
    with pytest.raises(BuildError, match=r"is no reference to a secret: write \$\{NAME\}"):
        resolved(text)


def test_urls_of_files_may_refer_to_secrets(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "folder").write_text("harbour-7\n")
    monkeypatch.setenv("TIDE_FILE", "ships")
    url = f"memory://${{file:{tmp_path}/folder}}/${{TIDE_FILE}}"
    with tg.Pipeline(options=[]) as p:
        _ = p | tg.Create(["brig", "sloop"]) | tg.io.WriteToText(url, num_shards=1, shard_name_template="")
    q = tg.Pipeline(options=[])
    read = q | tg.io.ReadFromText("memory://harbour-7/ships")
    assert sorted(read.collect()) == ["brig", "sloop"]
    with pytest.raises(BuildError, match=r"only URLs may refer to secrets"):
        tg.io.WriteToText(f"{tmp_path}/${{TIDE_FILE}}")
    monkeypatch.delenv("TIDE_FILE")
    with pytest.raises(BuildError, match="has no environment variable TIDE_FILE"):
        _ = tg.Pipeline(options=[]) | tg.io.ReadFromText(url)


def test_resolved_values_and_passwords_in_urls_are_redacted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIDE_PASSWORD", "neap-or-spring")
    resolved("${TIDE_PASSWORD}")
    assert redacted("denied: neap-or-spring at ftp://me:you@host/x") == "denied: *** at ftp://***@host/x"


def test_a_value_that_contains_another_is_redacted_completely() -> None:
    conceal("ebbs")
    conceal("ebbsandflows")
    assert redacted("it ebbsandflows") == "it ***"


@pytest.mark.parametrize("turn", [1, 2])
def test_a_value_is_redacted_in_no_test_but_the_one_that_registers_it(turn: int) -> None:
    assert redacted("slack water") == "slack water"
    conceal("slack water")
    assert redacted("slack water") == "***"


def test_a_password_is_redacted_up_to_the_last_at_sign() -> None:
    assert redacted("no answer from sftp://me:y@u@host/a@b") == "no answer from sftp://***@host/a@b"
    assert redacted("https://host:80/a?mail=me@home") == "https://host:80/a?mail=me@home"


def test_short_values_are_not_redacted() -> None:
    conceal("sea")
    assert redacted("by the sea") == "by the sea"
