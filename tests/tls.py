"""TLS in front of a server that has none, as it is spoken to PostgreSQL: certificates of a test's own, and a proxy."""

from __future__ import annotations

import contextlib
import datetime
import socket
import ssl
import threading
from collections.abc import Iterator
from pathlib import Path

SSL_REQUEST = bytes.fromhex("0000000804d2162f")  # what a client of PostgreSQL says before it begins TLS


def make_certificate(directory: Path, host: str) -> tuple[Path, Path]:
    """Make a certificate for `host` that is its own authority; return its file and its key's."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, host)])
    start = datetime.datetime.now(datetime.timezone.utc) - datetime.timedelta(days=1)
    builder = x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key())
    builder = builder.serial_number(1).not_valid_before(start).not_valid_after(start + datetime.timedelta(days=9))
    builder = builder.add_extension(x509.SubjectAlternativeName([x509.DNSName(host)]), critical=False)
    builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
    made = builder.sign(key, hashes.SHA256())
    directory.mkdir(parents=True)
    certificate, secret = directory / "certificate.pem", directory / "key.pem"
    certificate.write_bytes(made.public_bytes(serialization.Encoding.PEM))
    plain = (serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    secret.write_bytes(key.private_bytes(serialization.Encoding.PEM, *plain))
    return certificate, secret


@contextlib.contextmanager
def proxy(target: Path, certificate: Path, key: Path) -> Iterator[int]:
    """Serve the socket `target` on a port of this machine, over TLS only; yields the port."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificate, key)
    threads: list[threading.Thread] = []

    def serve(client: socket.socket) -> None:
        with contextlib.suppress(OSError), client:
            if client.recv(8) != SSL_REQUEST:
                return
            client.sendall(b"S")
            with context.wrap_socket(client, server_side=True) as inner, socket.socket(socket.AF_UNIX) as server:
                server.connect(str(target))
                back = threading.Thread(target=_copy, args=(server, inner))
                back.start()
                _copy(inner, server)
                back.join()

    def accept() -> None:
        with contextlib.suppress(OSError):
            while True:
                thread = threading.Thread(target=serve, args=(listening.accept()[0],))
                thread.start()
                threads.append(thread)

    with socket.create_server(("127.0.0.1", 0)) as listening:
        threads.append(threading.Thread(target=accept))
        threads[0].start()
        yield listening.getsockname()[1]
        listening.shutdown(socket.SHUT_RDWR)
    for thread in threads:
        thread.join()


def _copy(source: socket.socket, target: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(65536):
            target.sendall(data)
    with contextlib.suppress(OSError):
        target.shutdown(socket.SHUT_WR)
