"""What `relume up` says when it cannot listen."""

from __future__ import annotations

import errno
import socket
from pathlib import Path

import pytest

from deploy.compose.up import no_port, run
from deploy.settings.settings import load_settings


@pytest.mark.parametrize("role", ["gateway", "admin"])
@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
def test_a_taken_port_is_named(role: str, host: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Exit code 1, and one sentence with the role, the address and the option; no talk of shutting down."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family) as taken:
        try:
            taken.bind((host, 0))
        except OSError:
            pytest.skip("needs IPv6")
        taken.listen()
        port = taken.getsockname()[1]
        given = {"gateway_port": "0", "admin_port": "0", f"{role}_port": str(port), f"{role}_host": host}
        settings = load_settings({**given, "events": "memory:", "data_dir": str(tmp_path)})
        assert run(settings, ()) == 1
    said = capfd.readouterr().err
    assert f"the {role} port, {host}:{port}, is taken by another program; choose another with --{role}-port" in said
    assert "shutting down" not in said


def test_other_reasons_not_to_listen(tmp_path: Path) -> None:
    """A wrong address names the host's option; an unknown text is passed on with both options."""
    settings = load_settings({"gateway_port": "81", "admin_port": "82", "data_dir": str(tmp_path)})
    text = "error while attempting to bind on address ('127.0.0.1', 81): cannot assign requested address"
    told = str(no_port(OSError(errno.EADDRNOTAVAIL, text), settings))
    assert "--gateway-host" in told
    assert "--gateway-port" not in told
    assert "may not be used" in str(no_port(OSError(errno.EACCES, text.replace("81", "82")), settings))
    assert "--gateway-port and --admin-port" in str(no_port(OSError(errno.EADDRINUSE, "taken"), settings))
