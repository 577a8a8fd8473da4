"""What a control plane needs to trust itself: an authority, a server's certificate, the accounts' key, tokens."""

from __future__ import annotations

import datetime as dt
import ipaddress
import json
import secrets
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

_BEGIN: Final = dt.datetime(2020, 1, 1, tzinfo=dt.UTC)
_END: Final = dt.datetime(2120, 1, 1, tzinfo=dt.UTC)

NAMES: Final = ("localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc")
USERS: Final = {
    "admin": ("admin", "system:masters"),
    "kcm": ("system:kube-controller-manager", ""),
    "sched": ("system:kube-scheduler", ""),
}
"""By the word that the tests use: the user's name, and its group."""


@dataclass(frozen=True, slots=True)
class Papers:
    """Paths of the files, and each user's token."""

    authority: Path
    server: Path
    server_key: Path
    account_key: Path
    token_file: Path
    audit_policy: Path
    tokens: dict[str, str]


def write_papers(folder: Path) -> Papers:
    """Make them all, in `folder`."""
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "kubernetes tests")])
    authority = (
        _builder(name, name, key)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .add_extension(x509.KeyUsage(True, False, False, False, False, True, True, False, False), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )
    server_key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    addresses = [ipaddress.ip_address("127.0.0.1"), ipaddress.ip_address("10.0.0.1")]
    also = [*map(x509.DNSName, NAMES), *map(x509.IPAddress, addresses)]
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "kube-apiserver")])
    server = (
        _builder(subject, name, server_key)
        .add_extension(x509.SubjectAlternativeName(also), critical=False)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )
    accounts = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    tokens = {word: secrets.token_hex(16) for word in USERS}
    lines = [f'{tokens[word]},{user},{word},"{group}"' for word, (user, group) in USERS.items()]
    policy = {"apiVersion": "audit.k8s.io/v1", "kind": "Policy", "omitStages": ["RequestReceived"],
              "rules": [{"level": "Metadata"}]}  # fmt: skip
    return Papers(
        authority=_write(folder / "ca.pem", authority.public_bytes(serialization.Encoding.PEM)),
        server=_write(folder / "server.pem", server.public_bytes(serialization.Encoding.PEM)),
        server_key=_write(folder / "server.key", _pem(server_key)),
        account_key=_write(folder / "accounts.key", _pem(accounts)),
        token_file=_write(folder / "tokens.csv", ("\n".join(lines) + "\n").encode()),
        audit_policy=_write(folder / "audit.json", json.dumps(policy).encode()),
        tokens=tokens,
    )


def _builder(subject: x509.Name, issuer: x509.Name, key: rsa.RSAPrivateKey) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(_BEGIN)
        .not_valid_after(_END)
    )


def _pem(key: rsa.RSAPrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def _write(path: Path, content: bytes) -> Path:
    path.write_bytes(content)
    return path
