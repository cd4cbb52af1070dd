"""The place of a mirror: its option, its variable, and URLs that are refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.errors import UsageError
from bench.sweep import command as sweep
from bench.sweep.preflight import mirror_url
from bench.sync.mirror import open_mirror
from bench.sync.place import open_place, refuse_password


@pytest.mark.parametrize("words", [["--dry-run", "--json"], ["--offline"]])
@pytest.mark.parametrize("url", ["s3://key:secret@bucket/x", "gs://key:se/secret@bucket/x"])
def test_a_password_is_never_printed(
    url: str,
    words: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    command = ["--algo", "fedavg", "--dataset", "digits", "--out", str(tmp_path), *words]
    assert sweep.main([*command, "--mirror", url]) == 2
    monkeypatch.setenv("FEDKD_MIRROR", url)
    assert sweep.main(command) == 2
    printed = capsys.readouterr()
    assert "secret@" not in printed.out + printed.err
    assert printed.err.count("has a password in it") == 2


@pytest.mark.parametrize("query", ["secret_key=abc", "AWS_SESSION_TOKEN=", "a=b&password"])
def test_a_secret_in_a_query_is_refused(query: str) -> None:
    with pytest.raises(UsageError, match="has a password in it"):
        refuse_password(f"s3://bucket/x?{query}")


@pytest.mark.parametrize(
    "url", ["hdfs://host:8020/a@b", "s3://bucket/a:b", "s3://key@bucket/x", "a:b@c"]
)
def test_what_is_no_password_is_none(url: str) -> None:
    refuse_password(url)


def test_a_url_of_no_file_system_is_refused() -> None:
    with pytest.raises(UsageError, match="nope://host/x"):
        open_place("nope://host/x")


@pytest.mark.parametrize("where", [".", "inside", ".."])
def test_a_mirror_within_the_folder_or_around_it_is_refused(where: str, tmp_path: Path) -> None:
    out = tmp_path / "a" / "out"
    with pytest.raises(UsageError, match=str(out)):
        open_mirror(str(out / where), out)


def test_the_variable_stands_in_for_the_option(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FEDKD_MIRROR", "s3://bucket/x")
    assert mirror_url(None) == "s3://bucket/x"
    assert mirror_url("/there") == "/there"
    assert mirror_url("") is None
    assert mirror_url("/there", offline=True) == "/there"
    with pytest.raises(UsageError, match="--offline"):
        mirror_url(None, offline=True)
    monkeypatch.delenv("FEDKD_MIRROR")
    assert mirror_url(None) is None
