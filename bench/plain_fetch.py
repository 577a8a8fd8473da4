"""One plain download of a URL to a file by somebody else's client, in a process of its own; prints seconds as JSON.

``PYTHON bench/plain_fetch.py CLIENT URL FOLDER``. Standard library alone at the top, so that the Python of an
environment which has the client and not relume runs it. What importing and connecting takes is not the download's: a
first one goes before the one that is measured. Nobody here takes a digest.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import shutil
import sys
import time
from pathlib import Path
from urllib.parse import urlsplit

REGION = "us-east-1"  # any: requests are not signed


def _obstore(url: str, target: Path) -> None:
    store = importlib.import_module("obstore.store")
    base, _, name = url.rpartition("/")
    made = store.HTTPStore.from_url(base, client_options={"allow_http": True, "timeout": "600s"})
    with target.open("wb") as file:
        for piece in made.get(name).stream(min_chunk_size=1 << 20):
            file.write(piece)


def _huggingface_hub(url: str, target: Path) -> None:
    hub = importlib.import_module("huggingface_hub.file_download")
    with target.open("wb") as file:
        hub.http_get(url, file)


def bucket_and_key(url: str) -> tuple[str, str, str]:
    """``http://HOST/BUCKET/KEY`` as S3 clients see it: the endpoint, the bucket, the key."""
    parts = urlsplit(url)
    bucket, _, key = parts.path.removeprefix("/").partition("/")
    return f"{parts.scheme}://{parts.netloc}", bucket, key


def _boto3(url: str, target: Path) -> None:
    """S3Transfer with its own defaults: parts of 8 MiB, ten threads."""
    config = importlib.import_module("botocore.config").Config
    unsigned = importlib.import_module("botocore").UNSIGNED
    endpoint, bucket, key = bucket_and_key(url)
    client = importlib.import_module("boto3").client(
        "s3", endpoint_url=endpoint, region_name=REGION,
        config=config(signature_version=unsigned, s3={"addressing_style": "path"}),
    )  # fmt: skip
    client.download_file(bucket, key, str(target))


def _awscrt(url: str, target: Path) -> None:
    """The C client that `aws s3 cp` of version 2 and s3transfer use on large machines; parts of 8 MiB."""
    http, files, s3 = (importlib.import_module(f"awscrt.{name}") for name in ("http", "io", "s3"))
    parts = urlsplit(url)
    group = files.EventLoopGroup()
    client = s3.S3Client(
        bootstrap=files.ClientBootstrap(group, files.DefaultHostResolver(group)), region=REGION,
        tls_mode=s3.S3RequestTlsMode.DISABLED, part_size=8 << 20,
    )  # fmt: skip
    asked = http.HttpRequest("GET", parts.path, http.HttpHeaders([("host", parts.netloc)]))
    request = client.make_request(request=asked, type=s3.S3RequestType.GET_OBJECT, recv_filepath=str(target))
    request.finished_future.result(600)


CLIENTS = {"obstore": _obstore, "huggingface_hub": _huggingface_hub, "boto3": _boto3, "awscrt": _awscrt}


def main(name: str, url: str, folder: Path) -> None:
    """Download twice; the second time is told."""
    folder.mkdir(exist_ok=True)
    CLIENTS[name](url, folder / "warm")
    cpu, began = time.process_time(), time.monotonic()
    CLIENTS[name](url, folder / "model")
    seconds, cpu = time.monotonic() - began, time.process_time() - cpu
    if (folder / "model").stat().st_size != (folder / "warm").stat().st_size:
        raise SystemExit(f"{name} wrote another length the second time")
    print(json.dumps({"seconds": seconds, "cpu": cpu}))
    shutil.rmtree(folder)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], Path(sys.argv[3]))
