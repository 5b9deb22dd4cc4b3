"""A cluster over TLS: certificates of one authority let in, and whatever else is one sentence."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import dask
import pytest
from dask_processes import free_port, processes, scheduler, wait_for_two, worker

from cimtool.base import cluster
from cimtool.base.cluster import AUTHORITY, CERTIFICATE, KEY
from cimtool.base.errors import CimError
from cimtool.experiments.commands.sweep import command as sweep
from cimtool.galleries.commands.search import command as search

pytestmark = pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl is not installed")


@pytest.fixture(scope="module", autouse=True)
def _defaults() -> None:
    """Those of `distributed` are there before `dask.config.set`, which puts back what was there."""
    import distributed  # noqa: F401


def openssl(*arguments: object) -> None:
    subprocess.run(["openssl", *map(str, arguments)], check=True, capture_output=True)


def authority(folder: Path) -> Path:
    """A folder with `ca.pem`, and `cert.pem` and `key.pem` that it signs, made as on the page."""
    folder.mkdir()
    ca, request, new = folder / "ca.pem", folder / "request.pem", ("-newkey", "rsa:2048", "-nodes")
    openssl("req", "-x509", *new, "-keyout", folder / "ca-key.pem", "-out", ca, "-subj", "/CN=ca")
    openssl("req", *new, "-keyout", folder / "key.pem", "-out", request, "-subj", "/CN=dask")
    openssl(
        *("x509", "-req", "-in", request, "-CA", ca, "-CAkey", folder / "ca-key.pem"),
        *("-CAcreateserial", "-out", folder / "cert.pem"),
    )
    return folder


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return authority(tmp_path_factory.mktemp("tls") / "ours")


@pytest.fixture(scope="module")
def others(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return authority(tmp_path_factory.mktemp("tls") / "others")


def configured(files: Path | None, **changed: Path | None) -> dask.config.set:
    """Dask's configuration, as the environment of a command gives it."""
    keys = {"ca": "ca-file", "cert": "client.cert", "key": "client.key"}
    named = {name: files and files / f"{name}.pem" for name in keys} | changed
    return dask.config.set(
        {
            f"distributed.comm.tls.{keys[name]}": None if file is None else str(file)
            for name, file in named.items()
        }
    )


def keys(files: Path) -> list[str]:
    return [
        *("--tls-ca-file", str(files / "ca.pem"), "--tls-cert", str(files / "cert.pem")),
        *("--tls-key", str(files / "key.pem")),
    ]


@pytest.fixture(scope="module")
def address(ours: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A scheduler and two workers with our certificates."""
    port, folder = free_port(), tmp_path_factory.mktemp("workers")
    more = [
        worker(port, folder / one, *keys(ours), "--protocol", "tls", scheme="tls") for one in "ab"
    ]
    with processes(scheduler(port, *keys(ours), scheme="tls"), *more), configured(ours):
        found = f"tls://127.0.0.1:{port}"
        wait_for_two(found)
        yield found


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster, "CONNECT_SECONDS", 60)


def refused(address: str) -> str:
    with pytest.raises(CimError) as caught, cluster.connected(address):
        pass
    return str(caught.value)


def double(shared: int, value: int) -> int:
    return shared * value


def test_certificates_of_one_authority_let_in(address: str, ours: Path) -> None:
    double.__module__ = "__main__"  # by value: workers cannot import this file
    calls = [(value,) for value in range(5)]
    with configured(ours), cluster.connected(address) as client:
        found = cluster.on_cluster(client, address, double, 2, calls, "a number", "again")
        assert sorted(found) == [0, 2, 4, 6, 8]


def test_other_certificates_do_not(
    address: str, ours: Path, others: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster, "CONNECT_SECONDS", 10)
    expected = f"expected a scheduler over TLS, with certificates of the authority in {AUTHORITY}"
    with configured(others):
        assert "the TLS handshake failed (CERTIFICATE_VERIFY_FAILED)" in refused(address)
    # They trust us, and we are of another authority.
    with configured(others, ca=ours / "ca.pem"):
        said = refused(address)
    assert "the TLS handshake failed (" in said
    assert expected in said
    monkeypatch.setattr(cluster, "CONNECT_SECONDS", 2)
    tcp = address.replace("tls", "tcp")
    with configured(None):
        assert "no scheduler answered within 2 seconds" in refused(tcp)
        with dask.config.set({"distributed.comm.require-encryption": True}):
            assert f"requires encryption; expected {address}" in refused(tcp)


def test_files_that_are_missing_or_wrong(ours: Path, tmp_path: Path) -> None:
    address, none, wrong = "tls://127.0.0.1:9", tmp_path / "none.pem", tmp_path / "wrong.pem"
    wrong.write_text("no certificate")
    with configured(None):
        assert refused(address) == (
            f"dask {address}: TLS has no file; set {AUTHORITY} to a PEM file"
        )
    with configured(ours, cert=None):
        assert f"TLS has no file; set {CERTIFICATE} to a" in refused(address)
    for changed, variable in (
        ({"cert": none}, CERTIFICATE), ({"key": none}, KEY)
    ):  # fmt: skip
        with configured(ours, **changed):
            assert f"{variable} is {none}, and there is no such file" in refused(address)
    with configured(ours, cert=wrong):
        said = refused(address)
    assert said.startswith(f"dask {address}: {CERTIFICATE} is {wrong} and {KEY} {ours / 'key.pem'}")
    assert said.endswith("expected a certificate and its key in PEM")
    with configured(ours, ca=wrong):
        said = refused(address)
    assert said.startswith(f"dask {address}: {AUTHORITY} is {wrong}, which cannot be read (")


def test_the_environment_names_the_files_of_a_command(
    ours: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for variable, name in ((AUTHORITY, "ca"), (CERTIFICATE, "cert"), (KEY, "key")):
        monkeypatch.setenv(variable, str(ours / f"{name}.pem"))
    tls = dask.config.collect_env()["distributed"]["comm"]["tls"]
    assert tls == {
        "ca_file": str(ours / "ca.pem"),
        "client": {"cert": str(ours / "cert.pem"), "key": str(ours / "key.pem")},
    }


@pytest.mark.thorough("starts a cluster")
def test_workers_with_another_cimtool_are_refused_before_any_work(tmp_path: Path) -> None:
    """Dask's own answer says it, before an object of cimtool's is sent."""
    port, other = free_port(), tmp_path / "other" / "cimtool-0.0.1.dist-info"
    other.mkdir(parents=True)
    (other / "METADATA").write_text("Metadata-Version: 2.1\nName: cimtool\nVersion: 0.0.1\n")
    both = [worker(port, tmp_path / one) for one in "ab"]
    address = f"tcp://127.0.0.1:{port}"
    with processes(scheduler(port), *both, first=other.parent):
        wait_for_two(address)
        assert "a worker has cimtool 0.0.1; expected " in refused(address)


LIAR = """
import asyncio, os, sys
from distributed.core import Server
from distributed.protocol import to_serialize

class Opened:
    def __reduce__(self):
        return os.mkdir, (sys.argv[2],)

async def identity():
    return {"workers": {"tcp://127.0.0.1:1": {"last_seen": 1.0}}}

async def broadcast(msg, on_error):
    return {"tcp://127.0.0.1:1": {"packages": {"cimtool": "9.9"}, "more": to_serialize(Opened())}}

async def main():
    server = Server({"identity": identity, "broadcast": broadcast})
    await server.listen(sys.argv[1])
    print(flush=True)
    await asyncio.sleep(600)

asyncio.run(main())
"""


def test_an_answer_on_versions_is_not_unpickled(tmp_path: Path) -> None:
    """From a peer that sends an object beside its version."""
    address, opened = f"tcp://127.0.0.1:{free_port()}", tmp_path / "opened"
    command, pipe = [sys.executable, "-c", LIAR, address, str(opened)], subprocess.PIPE
    with subprocess.Popen(command, stdout=pipe, text=True) as liar:
        assert liar.stdout is not None
        liar.stdout.readline()
        try:
            with pytest.raises(CimError, match=r"a worker has cimtool 9\.9"):
                cluster._check_versions(address)
        finally:
            liar.kill()
    assert not opened.exists()


@pytest.mark.thorough("processes for two lines of help")
@pytest.mark.parametrize("command", [search, sweep])
def test_the_help_says_that_tcp_keeps_nobody_out(command: object) -> None:
    (option,) = (one for one in command.params if one.name == "dask")  # type: ignore[attr-defined]
    assert "anyone who reaches the cluster can run code in it and here" in option.help
