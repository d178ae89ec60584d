"""A sealed pipeline holds the names of secrets, never their values."""

from __future__ import annotations

import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretBytes, SecretStr

import tidegate as tg
from tidegate.runners.streaming.client.serialization import with_values
from tidegate.sdk.errors import LoadError
from tidegate.sdk.portable.fingerprint import fingerprint
from tidegate.sdk.portable.json import dump, load
from tidegate.sdk.portable.model import ParDo
from tidegate.sdk.portable.secrets import secret_names, secrets_of
from tidegate.sdk.secrets.registry import install_secrets, names_in, register, reveal, suggest


class Login:
    """A step with a secret among its attributes."""

    def __init__(self, secret: Any) -> None:
        self.parts = {"user": "moon", "secret": [secret]}

    def __call__(self, element: Any) -> Any:
        return self.parts["secret"][0].get_secret_value()


def pipeline_with(secret: Any) -> tg.Pipeline:
    p = tg.Pipeline(options=[])
    _ = p | tg.Create([1]) | "log in" >> tg.Map(Login(secret)) | tg.Map(print)
    return p


def test_the_value_of_a_secret_is_in_no_part_of_a_compiled_pipeline() -> None:
    sealed = pipeline_with(SecretStr("spring-tide-1")).sealed(values=True)
    text = dump(sealed)
    assert "spring-tide-1" not in text
    assert b"spring-tide-1" not in pickle.dumps(sealed)
    (name,) = secret_names(sealed)
    assert secret_names(sealed) == {name: "log in"}
    assert secrets_of(sealed) == {name: "spring-tide-1"}


def test_elements_that_are_secrets_are_sealed_by_name() -> None:
    p = tg.Pipeline(options=[])
    _ = p | tg.Create([SecretBytes(b"neap-tide-2")]) | tg.Map(print)
    sealed = with_values(p.sealed())
    assert b"neap-tide-2" not in dump(sealed).encode()
    assert list(secrets_of(sealed).values()) == [b"neap-tide-2"]


def test_binary_secrets_are_bytes_where_their_value_was_given_as_text() -> None:
    compiled = load(dump(pipeline_with(SecretBytes(b"neap-tide-9")).sealed(values=True)))
    (name,) = secret_names(compiled)
    install_secrets({name: "text-of-a-variable"})
    (log_in,) = [node for node in compiled.nodes if node.label == "log in"]
    assert isinstance(log_in, ParDo)
    assert log_in.fn.load()(1) == b"text-of-a-variable"


def test_a_secret_option_gives_its_name_to_the_secret() -> None:
    class Options(tg.PipelineOptions):
        door_key: SecretStr

    options = Options(door_key=SecretStr("spring-tide-3"))
    assert list(secret_names(pipeline_with(options.door_key).sealed())) == ["door_key"]


def test_the_fingerprint_of_a_step_does_not_depend_on_the_value() -> None:
    first = fingerprint(pipeline_with(SecretStr("spring-tide-4")).portable())
    assert register(SecretStr("spring-tide-4")) == register(SecretStr("spring-tide-4"))
    install_secrets({register(SecretStr("spring-tide-4")): "spring-tide-5"})
    second = fingerprint(pipeline_with(SecretStr("spring-tide-5")).portable())
    assert first == second


def test_two_values_never_share_a_name() -> None:
    for value in ("spring-tide-6", "spring-tide-7"):
        suggest(SecretStr(value), "same")
    assert register(SecretStr("spring-tide-6")) == "same"
    assert register(SecretStr("spring-tide-7")) != "same"
    assert reveal("same") == SecretStr("spring-tide-6")


def test_an_unknown_secret_is_named() -> None:
    with pytest.raises(LoadError, match="the value of the secret 'unheard-of' is not known in this process"):
        reveal("unheard-of")


def test_names_of_secrets_are_found_in_a_pickle_without_loading_it() -> None:
    name = register(SecretStr("spring-tide-8"))
    assert names_in(pickle.dumps((reveal, "tidegate-secret:" + name, "tidegate-secret:" + name))) == [name]
    assert names_in(pickle.dumps("no secret")) == []


SCRIPT = """
import sys
import pydantic
import tidegate as tg

class Options(tg.PipelineOptions):
    door_key: pydantic.SecretStr = pydantic.SecretStr("a-default-key")

def pipeline(options: Options) -> tg.Pipeline:
    p = tg.Pipeline()
    key = options.door_key
    _ = p | tg.Create([1]) | "open" >> tg.Map(lambda n: print(len(key.get_secret_value()), key))
    return p
"""


def tidegate(folder: Path, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    import os

    environment = {name: value for name, value in os.environ.items() if not name.startswith("TIDEGATE_SECRET_")}
    command = [sys.executable, "-m", "tidegate", *arguments]
    return subprocess.run(
        command, cwd=folder, env=environment | variables, capture_output=True, text=True, timeout=120,
        stdin=subprocess.DEVNULL,
    )  # fmt: skip


def test_a_compiled_pipeline_asks_for_its_secrets_by_name(tmp_path: Path) -> None:
    (tmp_path / "doors.py").write_text(SCRIPT)
    compiled = tidegate(tmp_path, "compile", "doors.py", "--door_key", "spring-tide-9", "-o", "doors.json")
    assert compiled.returncode == 0, compiled.stderr
    assert "spring-tide-9" not in (tmp_path / "doors.json").read_text()
    refused = tidegate(tmp_path, "run", "doors.json")
    assert refused.returncode == 2
    assert refused.stderr.startswith(
        "error: the secret 'door_key', which step 'open' uses, is not in the compiled pipeline: set the environment "
        "variable TIDEGATE_SECRET_DOOR_KEY, or run it on a terminal, which asks for it"
    )
    completed = tidegate(tmp_path, "run", "doors.json", TIDEGATE_SECRET_DOOR_KEY="twelve chars")
    assert (completed.returncode, completed.stdout) == (0, "12 **********\n"), completed.stderr
    drawn = tidegate(tmp_path, "explain", "doors.json")
    assert drawn.returncode == 0, drawn.stderr
