"""Lets a program that knows only the real hosts speak to a fake: a proxy that ends TLS and hands the bytes on."""

from __future__ import annotations

import shutil
import socket
import ssl
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

SLICE = 64 << 10


def program(name: str) -> str:
    """The path of a program that a package has put beside Python, else of the one on the path."""
    beside = Path(sys.executable).with_name(name)
    return str(beside) if beside.exists() else shutil.which(name) or name


@contextmanager
def tunnel(fake: int, domain: str, folder: Path) -> Iterator[dict[str, str]]:
    """The proxy while it runs: what a program's environment needs to come by it. `fake` is a port on this machine;
    `domain` is whose hosts it stands for, e.g. `googleapis.com`."""
    certificate = folder / "certificate.pem"
    context = _identity(certificate, domain)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        threading.Thread(target=_accept, args=(listener, context, fake), daemon=True).start()
        yield {"HTTPS_PROXY": f"http://127.0.0.1:{port}", "RCLONE_CA_CERT": str(certificate)}


def _identity(certificate: Path, domain: str) -> ssl.SSLContext:
    """A certificate that nobody but this test trusts, at a path, and a server's context that shows it."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, f"fake {domain}")])
    now = datetime.now(UTC)
    built = x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number(), now, now + timedelta(1))
    built = built.add_extension(x509.SubjectAlternativeName([x509.DNSName(f"*.{domain}")]), critical=False)
    built = built.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
    shown = built.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)
    certificate.write_bytes(shown)
    encoding, form = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
    both = certificate.with_name("both.pem")
    both.write_bytes(key.private_bytes(encoding, form, serialization.NoEncryption()) + shown)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(both)
    return context


def _accept(listener: socket.socket, context: ssl.SSLContext, fake: int) -> None:
    with suppress(OSError):
        while True:
            client, _ = listener.accept()
            threading.Thread(target=_serve, args=(client, context, fake), daemon=True).start()


def _serve(client: socket.socket, context: ssl.SSLContext, fake: int) -> None:
    """One CONNECT, then bytes in both directions."""
    with suppress(OSError), client:
        asked = b""
        while b"\r\n\r\n" not in asked:
            asked += client.recv(SLICE) or b"\r\n\r\n"
        if not asked.startswith(b"CONNECT "):
            return
        client.sendall(b"HTTP/1.1 200 Connection established\r\n\r\n")
        with (
            context.wrap_socket(client, server_side=True) as inner,
            socket.create_connection(("127.0.0.1", fake)) as out,
        ):
            back = threading.Thread(target=_copy, args=(out, inner), daemon=True)
            back.start()
            _copy(inner, out)
            back.join()


def _copy(source: socket.socket, target: socket.socket) -> None:
    with suppress(OSError):
        while piece := source.recv(SLICE):
            target.sendall(piece)
    with suppress(OSError):
        target.shutdown(socket.SHUT_WR)
