"""TLS between a command and a Dask cluster: the files that Dask's configuration names, checked."""

from __future__ import annotations

import os
import socket
import ssl
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from cimtool.base.errors import ArgumentError

AUTHORITY, CERTIFICATE, KEY = (
    f"DASK_DISTRIBUTED__COMM__TLS__{name}" for name in ("CA_FILE", "CLIENT__CERT", "CLIENT__KEY")
)
"""Environment variables by which Dask knows a client's files; a key may stand in the certificate's.

Dask's own configuration files may name them as well.
"""


def check_tls(address: str, scheme: str, place: str, seconds: float) -> None:
    """Raise CimError where Dask's files for TLS are missing or wrong, or the handshake fails.

    Nothing is said where nobody answers within so many seconds. An address of TCP needs no files;
    those that are named must be right, for Dask reads them all the same.
    """
    from distributed.comm.addressing import parse_host_port
    from distributed.security import Security

    try:
        security = Security()
    except ValueError as error:  # of a version of TLS
        raise ArgumentError("{dask} {}: Dask's configuration says {}", address, error) from error
    _check_files(address, scheme == "tls", security.get_tls_config_for_role("client"))
    if scheme == "tcp":
        if security.require_encryption:
            raise ArgumentError(
                "{dask} is {}, and Dask's configuration requires encryption; expected tls://{}",
                address,
                place,
            )
        return
    context = security.get_connection_args("client")["ssl_context"]
    try:
        with (
            socket.create_connection(parse_host_port(place), seconds) as plain,
            context.wrap_socket(plain) as stream,
        ):
            stream.recv(1)  # a server that refuses our certificate says so after the handshake
    except ssl.SSLError as error:
        raise ArgumentError(
            "{dask} {}: the TLS handshake failed ({}); expected a scheduler over TLS, with "
            "certificates of the authority in {} on both sides",
            address,
            error.reason or error,
            AUTHORITY,
        ) from error
    except (OSError, ValueError):
        return


def _check_files(address: str, required: bool, files: Mapping[str, str | None]) -> None:
    """Raise CimError for a file that is not named, not there, or not what it should be."""
    named = {AUTHORITY: files["ca_file"], CERTIFICATE: files["cert"], KEY: files["key"]}
    for variable, file in named.items():
        if file is None and required and variable != KEY:
            raise ArgumentError(
                "{dask} {}: no file is named for TLS; expected {}, a file in PEM",
                address,
                variable,
            )
        if file is not None and not os.path.isfile(file):
            raise ArgumentError(
                "{dask} {}: {} is {}, and there is no such file", address, variable, file
            )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    authority, certificate, key = named.values()
    if authority is not None:
        with _in_pem(address, f"{AUTHORITY} is {authority}", "certificates of an authority"):
            context.load_verify_locations(authority)
    if certificate is not None:
        said = f"{CERTIFICATE} is {certificate}" + (f" and {KEY} {key}" if key else "")
        with _in_pem(address, said, "a certificate and its key"):
            context.load_cert_chain(certificate, key)


@contextmanager
def _in_pem(address: str, said: str, expected: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:  # an SSLError is one
        raise ArgumentError(
            "{dask} {}: {}, which cannot be read ({}); expected {} in PEM",
            address,
            said,
            getattr(error, "reason", None) or error.strerror or error,
            expected,
        ) from error
