"""`storage_options` reach the file system of a URL in the process that opens files, and their secrets show nowhere."""

from __future__ import annotations

import pickle
import sys
from collections.abc import Iterator
from typing import Any

import fsspec
import pytest
from fsspec.implementations.memory import MemoryFileSystem
from fsspec.registry import _registry
from pydantic import SecretBytes, SecretStr

import tidegate as tg
from tests.support.record_files import FORMATS, VISIT, drain, elements_of, visits
from tidegate.io.storage_options import has_secrets, options_of, revealed
from tidegate.sdk.portable.json import dump
from tidegate.sdk.portable.secrets import secrets_of
from tidegate.testing import TestPipeline, assert_that, equal_to

SECRET = "moon-and-sun-vault"
READERS = {"visits.txt": (tg.io.ReadFromText, lambda records: b"one\ntwo\n", {}), **FORMATS}


class Vault(MemoryFileSystem):
    """A file system in memory that asks for a password."""

    protocol = "vault"
    store: dict[str, Any] = {}  # noqa: RUF012
    pseudo_dirs: list[str] = [""]  # noqa: RUF012

    def __init__(self, password: str = "", door: Any = None, **options: Any) -> None:
        super().__init__(**options)
        if password != SECRET:
            raise PermissionError(f"the password {password!r} is wrong")
        self.password = password
        self.door = door

    @classmethod
    def _strip_protocol(cls, path: str) -> str:
        return str(super()._strip_protocol(path.replace("vault://", "memory://")))


@pytest.fixture
def vault(monkeypatch: pytest.MonkeyPatch) -> Iterator[Vault]:
    monkeypatch.setenv("TIDE_VAULT", SECRET)
    fsspec.register_implementation("vault", Vault, clobber=True)
    vault = Vault(SECRET)
    yield vault
    vault.store.clear()
    Vault.clear_instance_cache()


SECRETS = [SecretStr(SECRET), "${TIDE_VAULT}"]


@pytest.mark.parametrize("password", SECRETS, ids=["SecretStr", "reference"])
@pytest.mark.parametrize("name", READERS)
def test_every_reader_passes_them_on(vault: Vault, name: str, password: Any) -> None:
    transform, made, needs = READERS[name]
    vault.pipe(f"/in/{name}", made(visits(20)))
    options = {"password": password, "door": {"side": ["${TIDE_VAULT}"]}}
    read = transform(f"vault://in/*{name[6:]}", storage_options=options, **needs)
    assert len(elements_of(read)) == (2 if name == "visits.txt" else 20)
    followed = transform(f"vault://in/*{name[6:]}", storage_options=options, follow=True, min_age=0, **needs).source
    followed.check()
    enumerator = followed.enumerator(None)
    splits = [*enumerator.discover(5).splits, *enumerator.discover(5).splits]
    assert SECRET not in f"{splits} {enumerator.state()} {followed}"
    assert SECRET.encode() not in pickle.dumps(splits)


WRITERS: dict[str, Any] = {
    "txt": tg.io.WriteToText,
    "csv": tg.io.WriteToCsv,
    "jsonl": tg.io.WriteToJson,
    "parquet": tg.io.WriteToParquet,
    "avro": tg.io.WriteToAvro,
    "arrow": tg.io.WriteToArrow,
}


def test_every_writer_passes_them_on(vault: Vault) -> None:
    options = {"password": SecretStr(SECRET)}
    p = tg.Pipeline("direct")
    rows = p | tg.Create([tg.Row(n=1)])
    for suffix, write in WRITERS.items():
        path = f"vault://out/{suffix}/part"
        _ = rows | suffix >> write(path, file_name_suffix=f".{suffix}", storage_options=options)
    assert SECRET not in dump(p.sealed(values=True))
    p.run()
    assert sorted(vault.find("/out")) == sorted(f"/out/{suffix}/part-00000-of-00001.{suffix}" for suffix in WRITERS)
    rolling = WRITERS["txt"]("vault://out/x", roll_interval=1, storage_options=options).sink
    assert rolling.storage_options == options
    with pytest.raises(tg.BuildError, match="WriteToCsv: storage_options are arguments for the file systems of URLs"):
        WRITERS["csv"]("out/x", storage_options=options)


def test_credentials_that_change_are_used_by_the_next_look_the_next_file_and_the_next_commit(
    vault: Vault, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = {"password": "${TIDE_VAULT}"}

    def change(value: str) -> None:
        """The store has another password from now on, and refuses clients with the one before."""
        monkeypatch.setattr(sys.modules[__name__], "SECRET", value)
        monkeypatch.setattr(Vault, "open", check_first(value))
        monkeypatch.setenv("TIDE_VAULT", value)

    change("spring-tide-1")
    Vault("spring-tide-1").pipe("/in/1.txt", b"one\n")
    source = tg.io.ReadFromText("vault://in/*", storage_options=options, follow=True, min_age=0).source
    enumerator = source.enumerator(None)
    assert enumerator is not None
    first = [*enumerator.discover(5).splits, *enumerator.discover(5).splits]
    sink = tg.io.WriteToJson("vault://out/x", storage_options=options).sink
    attempt = sink.attempt("run", 0)
    attempt.write([{"n": 1}])
    prepared = attempt.prepare()
    change("spring-tide-2")
    Vault("spring-tide-2").pipe("/in/2.txt", b"two\n")
    second = [*enumerator.discover(5).splits, *enumerator.discover(5).splits]
    assert [line for split in first + second for line in drain(source, split)] == ["one", "two"]
    sink.commit("run", prepared, 1)
    attempt.write([{"n": 2}])
    sink.commit("run", attempt.prepare(), 2)
    found = Vault("spring-tide-2")
    assert [found.cat(path) for path in sorted(found.find("/out"))] == [b'{"n": 1}\n', b'{"n": 2}\n']


def check_first(password: str) -> Any:
    """`open` of a vault that only clients with this password may open."""
    plain = MemoryFileSystem.open

    def opened(self: Any, *args: Any, **kwargs: Any) -> Any:
        if self.password != password:
            raise PermissionError("the password is an old one")
        return plain(self, *args, **kwargs)

    return opened


def test_files_that_are_elements_are_read_with_them(vault: Vault) -> None:
    vault.pipe("/in/visits.csv", FORMATS["visits.csv"][1](visits(3)))
    options = {"password": SecretStr(SECRET)}
    reference = {"password": "${TIDE_VAULT}"}
    with TestPipeline("direct") as p:
        found = p | tg.io.MatchFiles("vault://in/*", storage_options=options)
        ids = found | tg.io.ReadAllFromCsv(storage_options=options, schema=VISIT) | tg.Map(lambda row: row.id)
        assert_that(ids, equal_to([0, 1, 2]), label="ids")
        lines = found | tg.io.ReadAllFromText(storage_options=options) | "count" >> tg.combiners.Count.Globally()
        assert_that(lines, equal_to([4]), label="lines")
        files = found | tg.io.ReadMatches(storage_options=reference)
        assert_that(files | tg.Map(lambda file: len(file.read().splitlines())), equal_to([4]), label="files")
        again = p | tg.Create(["vault://in/*"]) | tg.io.MatchAll(storage_options=options)
        assert_that(again | tg.Map(lambda file: file.path), equal_to(["vault:///in/visits.csv"]), label="paths")


def test_their_secrets_are_in_no_part_of_the_pipeline_and_no_error(vault: Vault) -> None:
    vault.pipe("/in/it.csv", b"a\n1\n")
    p = tg.Pipeline(options=[])
    options = {"password": SecretStr(SECRET)}
    _ = p | tg.ReadFromCsv("vault://in/*", storage_options=options) | tg.Map(print)
    sealed = p.sealed(values=True)
    assert SECRET not in dump(sealed)
    assert SECRET.encode() not in pickle.dumps(sealed)
    assert list(secrets_of(sealed).values()) == [SECRET]
    wrong = {"password": SecretStr("sun-and-moon-vault")}
    with pytest.raises(tg.BuildError, match=r"vault://in/\*: PermissionError: the password '\*\*\*' is wrong"):
        _ = tg.Pipeline() | tg.ReadFromCsv("vault://in/*", storage_options=wrong)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("anon", "it: storage_options is a dict of arguments for fsspec, not 'anon'"),
        ({1: 2}, "it: storage_options is a dict of arguments for fsspec, not {1: 2}"),
        (
            {"client_kwargs": {"aws_secret_access_key": "open sesame"}},
            "it: storage_options has 'aws_secret_access_key' as plain text, which would become part of the pipeline: "
            "pass a pydantic.SecretStr, or a reference such as '${NAME}' to an environment variable",
        ),
        (
            {"client_kwargs": {"headers": {"Authorization": "Bearer open sesame"}}},
            "it: storage_options has 'Authorization' as plain text, which would become part of the pipeline: pass a "
            "pydantic.SecretStr, or a reference such as '${NAME}' to an environment variable",
        ),
    ],
)
def test_options_that_mean_nothing_or_show_a_password_are_refused(options: Any, message: str) -> None:
    with pytest.raises(tg.BuildError) as caught:
        options_of(options, ["s3://bucket"], "it")
    assert str(caught.value) == message


def test_a_local_path_takes_no_options() -> None:
    with pytest.raises(tg.BuildError) as caught:
        tg.ReadFromCsv(["s3://bucket/*.csv", "local.csv"], storage_options={"anon": True})
    assert str(caught.value) == (
        "ReadFromCsv: storage_options are arguments for the file systems of URLs, and 'local.csv' is a path"
    )


def test_files_of_read_matches_hold_no_secret() -> None:
    with pytest.raises(tg.BuildError, match=r"Use a reference instead, such as '\$\{NAME\}'"):
        tg.io.ReadMatches(storage_options={"token": SecretStr("a-secret-token")})


def test_secrets_are_found_and_revealed_at_any_depth(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIDE_A", "a-value")
    options = {"a": "${TIDE_A}", "b": [1, {"c": SecretBytes(b"tide-bytes")}], "d": None}
    assert has_secrets(options)
    assert not has_secrets({"a": "${TIDE_A}"})
    assert revealed(options) == {"a": "a-value", "b": [1, {"c": b"tide-bytes"}], "d": None}
    assert options_of({}, [], "it") is None


def test_a_url_of_http_needs_an_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "aiohttp", None)
    for protocol in ("http", "https"):
        monkeypatch.delitem(_registry, protocol, raising=False)
    monkeypatch.delitem(sys.modules, "fsspec.implementations.http", raising=False)
    with pytest.raises(tg.BuildError, match=r"https://host/a.csv: .* needs aiohttp: pip install 'tidegate\[http\]'"):
        _ = tg.Pipeline(options=[]) | tg.io.ReadFromText("https://host/a.csv")
