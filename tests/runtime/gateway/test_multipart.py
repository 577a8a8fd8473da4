"""The `model` field of a multipart form."""

from __future__ import annotations

import pytest

from runtime.gateway.errors import Refused
from runtime.gateway.multipart import read_multipart

_TYPE = b"multipart/form-data; boundary=XX"


def _part(disposition: bytes, value: bytes, more: bytes = b"") -> bytes:
    return b"--XX\r\nContent-Disposition: " + disposition + b"\r\n" + more + b"\r\n" + value + b"\r\n"


_MODEL = _part(b'form-data; name="model"', b"echo")
_FILE = _part(
    b'form-data; name="file"; filename="model.wav"', b'\r\n--X\r\nname="model"', b"Content-Type: audio/wav\r\n"
)
_END = b"--XX--\r\n"

GOOD = [
    (_TYPE, _MODEL + _END, "echo", False),
    (_TYPE, _FILE + _MODEL + _END, "echo", False),
    (_TYPE, _MODEL + _FILE + b"--XX--", "echo", False),
    (b'Multipart/Form-Data; charset=utf-8; boundary="XX"', _MODEL + _END, "echo", False),
    (_TYPE, _MODEL + _part(b'form-data; name="stream"', b"true") + _END, "echo", True),
    (_TYPE, _part(b'FORM-DATA ;name = "model"', "é".encode()) + _END, "é", False),
    (_TYPE, _FILE + _END, None, False),
    (_TYPE, _part(b"form-data; name=\"model\"; filename*=UTF-8''x", b"echo") + _END, "echo", False),
]

BAD = [
    (b"multipart/form-data", _MODEL + _END),
    (b"multipart/form-data; boundary=", _MODEL + _END),
    (_TYPE, b""),
    (_TYPE, b"preamble\r\n" + _MODEL + _END),
    (_TYPE, _MODEL + _END + b"epilogue"),
    (_TYPE, _MODEL),
    (_TYPE, _MODEL[:-2]),
    (_TYPE, _MODEL + _MODEL + _END),
    (_TYPE, _part(b"form-data; name=model", b"echo") + _END),
    (_TYPE, _part(b"form-data; name*=UTF-8''model", b"echo") + _END),
    (_TYPE, _part(b'form-data; name="x"; name="model"', b"echo") + _END),
    (_TYPE, _part(b'form-data; name="mo\\del"', b"echo") + _END),
    (_TYPE, _part(b"form-data", b"echo") + _END),
    (_TYPE, _part(b'attachment; name="model"', b"echo") + _END),
    (_TYPE, _part(b'form-data; name="model"', b"echo", b'Content-Disposition: form-data; name="x"\r\n') + _END),
    (_TYPE, _part(b'form-data; name="model"', b"\xff") + _END),
    (_TYPE, _part(b'form-data; name="model"', b"x" * 2000) + _END),
    (_TYPE, _part(b'form-data; name="stream"', b"maybe") + _END),
    (_TYPE, _part(b'form-data; name="a"', b"b") * 300 + _END),
    (_TYPE, b"--XX \r\n" + _MODEL[6:] + _END),
    (_TYPE, b"--XX\r\nno head"),
]


@pytest.mark.parametrize(("content_type", "body", "model", "stream"), GOOD)
def test_forms_that_are_read(content_type: bytes, body: bytes, model: str | None, stream: bool) -> None:
    """The field is found wherever it stands, and files are not looked into."""
    assert read_multipart(content_type, body) == (model, stream)


@pytest.mark.parametrize(("content_type", "body"), BAD)
def test_forms_that_are_refused(content_type: bytes, body: bytes) -> None:
    """What parsers read differently is a 400."""
    with pytest.raises(Refused) as refused:
        read_multipart(content_type, body)
    assert refused.value.failure.status == 400
