"""A small HTTP server that plays an engine, well or badly: ``python fake_engine.py PORT [--flag value]``.

Standard library only; started by the command engine in tests of the local cluster.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path


def arguments() -> argparse.Namespace:
    """What it shall do."""
    parser = argparse.ArgumentParser()
    parser.add_argument("port", type=int)
    parser.add_argument("--load", type=float, default=0.0, help="seconds of 503 before it is healthy")
    parser.add_argument("--die-after", type=float, help="seconds after the first health answer of 200")
    parser.add_argument("--exit", type=int, help="exit at once with this code")
    parser.add_argument("--say", default="", help="a line to write first")
    parser.add_argument("--lora-modules", nargs="*", default=[], help="adapters, as vLLM takes them")
    parser.add_argument("--slots", type=int, help="slots that /slots tells")
    parser.add_argument("--warmup-status", type=int, default=200)
    parser.add_argument("--ignore-sigterm", action="store_true")
    parser.add_argument("--silent", action="store_true", help="never listen")
    parser.add_argument("--eat", type=int, default=0, help="mebibytes to use")
    parser.add_argument("--children", default="", help="file to write pids of descendants to")
    parser.add_argument("--stuck-when", default="", help="generate nothing while this file exists")
    parser.add_argument("--running", default="", help="a file with what /running tells")
    parser.add_argument("--tell-env", default="", help="file to write the environment to")
    return parser.parse_args()


SLEEPER = "import time; time.sleep(600)"
DOUBLE_FORK = f"""
import os, sys
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        open(sys.argv[1], "a").write(f"{{os.getpid()}}\\n")
        {SLEEPER}
    os._exit(0)
os.wait()
"""


def start_descendants(path: str) -> None:
    """A child in the group, and one that forks twice, leaves the session, and is nobody's child any more."""
    child = subprocess.Popen([sys.executable, "-S", "-c", SLEEPER])
    with Path(path).open("a") as file:
        file.write(f"{os.getpid()}\n{child.pid}\n")
    subprocess.run([sys.executable, "-S", "-c", DOUBLE_FORK, path], check=True)


class Handler(BaseHTTPRequestHandler):
    """Health, slots, one token."""

    options: argparse.Namespace
    loaded = threading.Event()
    protocol_version = "HTTP/1.1"
    wbufsize = 65536  # one segment an answer: two would wait for a delayed acknowledgement (40 ms)

    def do_GET(self) -> None:
        if self.path == "/slots":
            self.answer(200, [{"id": number} for number in range(self.options.slots or 0)])
        elif self.path == "/running":
            self.answer(200, {"running": int(Path(self.options.running).read_text()), "slots": 4})
        elif self.path == "/metrics":
            self.answer(200, None, b'vllm:num_requests_running 2\nvllm:num_requests_waiting{x="y"} 1\n')
        elif not self.loaded.is_set():
            self.answer(503, {"status": "loading"})
        else:
            if self.options.die_after is not None:
                threading.Timer(self.options.die_after, os._exit, (3,)).start()
            self.answer(200, {"status": "ok"})

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers.get("content-length", "0")))
        if self.options.stuck_when and Path(self.options.stuck_when).exists():
            threading.Event().wait(60)
        self.answer(self.options.warmup_status, {"choices": [{"text": "1"}]})

    def answer(self, status: int, body: object, raw: bytes | None = None) -> None:
        text = json.dumps(body).encode() if raw is None else raw
        self.send_response(status)
        self.send_header("content-length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, *_: object) -> None:
        """Say nothing: a log line is a sign of progress."""


def main() -> None:
    """Do as told."""
    options = arguments()
    if options.say:
        sys.stdout.write(options.say + "\n")
        sys.stdout.flush()
    if options.exit is not None:
        sys.exit(options.exit)
    if options.ignore_sigterm:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if options.tell_env:
        Path(options.tell_env).write_text(json.dumps(dict(os.environ)))
    if options.children:
        start_descendants(options.children)
    eaten = bytearray(os.urandom(1024) * 1024 * options.eat)
    if options.silent:
        signal.pause()
    Handler.options = options
    threading.Timer(options.load, Handler.loaded.set).start()
    server = ThreadingHTTPServer(("127.0.0.1", options.port), Handler)
    server.daemon_threads = True
    server.serve_forever()
    del eaten


if __name__ == "__main__":
    main()
