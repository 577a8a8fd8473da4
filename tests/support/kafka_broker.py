"""A real Apache Kafka for tests: one process (KRaft), without containers, its jars from Maven Central.

The jars, an archive of the broker's classes and one formatted data folder are kept outside the tree, under a hash of
what made them: RELUME_KAFKA_CACHE, else ~/.cache/relume/kafka. A `Broker` gets a copy of the folder and free ports.
"""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import functools
import hashlib
import importlib.util
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from tests.support.standing_still import freeze

PLACE: Final = Path(__file__).parent / "kafka"
CLUSTER_ID: Final = "MkU3OEVBNTcwNTJENDM2Qk"
READY_WITHIN: Final = 120.0  # seconds; a broker takes 1 to 4, ten times that on a busy machine
JVM: Final = (
    "-Xmx192m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xlog:disable", "-Xlog:all=error:stderr",
    "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
)  # fmt: skip


class KafkaMissing(Exception):
    """There is no Kafka here: no Java, or no jars and no Maven to fetch them."""


def cache() -> Path:
    """Where what this pom and these settings made is kept."""
    recipe = b"\0".join((PLACE / name).read_bytes() for name in ("pom.xml", "server.properties"))
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "relume" / "kafka"
    root = Path(os.environ.get("RELUME_KAFKA_CACHE") or home)
    return root / hashlib.sha256(recipe + repr(JVM).encode()).hexdigest()[:16]


def there() -> bool:
    """Whether a broker can be started: Java, and the jars or Maven."""
    if shutil.which("java") is None or importlib.util.find_spec("kafka") is None:
        return False
    return (cache() / "ready").exists() or shutil.which("mvn") is not None


def prepare() -> Path:
    """Fetch the jars, format a data folder, archive the classes; once, also when several processes ask."""
    home = cache()
    home.mkdir(parents=True, exist_ok=True)
    with (home / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (home / "ready").exists():
            _fetch(home)
            _format(home)
            _archive(home)
            (home / "ready").touch()
    return home


class Broker:
    """One broker with its data under `folder`. `start`, `kill` (as ``kill -9``), `start` again, `stop`.

    `edit` may change its settings.
    """

    def __init__(self, folder: Path, edit: Callable[[str], str] | None = None) -> None:
        from events.adapters.kafka.client import quieten  # noqa: PLC0415 - needs an extra

        quieten()  # log records that pytest keeps hold exceptions, which hold sockets beyond the end of the test
        self._home = prepare()
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self.port, self.controller_port = free_port(), free_port()
        shutil.copytree(self._home / "formatted", folder / "data")
        _write_settings(folder, self.port, self.controller_port)
        if edit is not None:
            settings = folder / "server.properties"
            settings.write_text(edit(settings.read_text(encoding="utf-8")), encoding="utf-8")
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        """HOST:PORT."""
        return f"127.0.0.1:{self.port}"

    def start(self, wait: bool = True) -> None:
        """Start it on the ports it had before; returns when it takes connections."""
        assert self._process is None, "it runs already"
        with (self.folder / "broker.log").open("ab") as log:
            self._process = subprocess.Popen(
                _java(self._home, "kafka.Kafka", str(self.folder / "server.properties")),
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
            )  # fmt: skip
        _alive.add(self._process)
        if wait:
            self.wait()

    def wait(self) -> None:
        """Return once it takes connections; AssertionError tells what it said otherwise."""
        deadline = time.monotonic() + READY_WITHIN  # noqa: TID251 - the time of a real process
        while time.monotonic() < deadline and self._running():  # noqa: TID251 - as above
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), 1):
                return
            time.sleep(0.05)
        said = (self.folder / "broker.log").read_text(errors="replace")[-2000:]
        raise AssertionError(f"the broker did not take connections: {said}")

    def kill(self) -> None:
        """End it at once: SIGKILL."""
        self._end(signal.SIGKILL)

    def end(self) -> None:
        """End it at once; nothing if it does not run."""
        if self._process is not None:
            self.kill()

    def freeze(self) -> None:
        """Let it stand still with its connections open: SIGSTOP."""
        assert self._process is not None
        freeze(self._process.pid)

    def thaw(self) -> None:
        """Let it go on: SIGCONT."""
        self._signal(signal.SIGCONT)

    def revive(self) -> None:
        """Whatever was done to it: it runs again."""
        if self._process is None:
            self.start()
        else:
            self.thaw()
            self.wait()

    def stop(self) -> None:
        """End it in order; nothing if it does not run."""
        if self._process is not None:
            self._end(signal.SIGTERM)

    def _signal(self, number: int) -> None:
        assert self._process is not None, "it does not run"
        self._process.send_signal(number)

    def _running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def _end(self, number: int) -> None:
        process, self._process = self._process, None
        assert process is not None, "it does not run"
        process.send_signal(number)
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(20)
        _alive.discard(process)


def free_port() -> int:
    """A port that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


_alive: set[subprocess.Popen[bytes]] = set()


def _end_all() -> None:
    for process in list(_alive):
        process.kill()
        process.wait(20)


atexit.register(_end_all)


def end_with_this_process() -> None:
    """Let SIGTERM end this process the ordinary way, so that no broker outlives it."""
    if threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))


@contextlib.contextmanager
def broker_in(folder: Path, edit: Callable[[str], str] | None = None) -> Iterator[Broker]:
    """A broker that runs, and is ended afterwards."""
    end_with_this_process()
    broker = Broker(folder, edit)
    broker.start()
    try:
        yield broker
    finally:
        broker.stop()


@functools.cache
def shared_broker() -> Broker:
    """The one broker of this process's tests, started when first asked for. Whoever kills it starts it again. It may be
    another one in the next file."""
    end_with_this_process()
    broker = Broker(Path(tempfile.mkdtemp(prefix="relume-kafka-")))
    atexit.register(shutil.rmtree, broker.folder, ignore_errors=True)
    broker.start()
    return broker


def end_shared() -> None:
    """End the shared one, if there is one; who asks again gets a new one."""
    if shared_broker.cache_info().currsize:
        broker = shared_broker()
        shared_broker.cache_clear()
        broker.end()
        shutil.rmtree(broker.folder, ignore_errors=True)


# Preparing.


def _java(home: Path, main: str, *arguments: str) -> list[str]:
    path = ":".join(
        str(jar) for jar in sorted((home / "lib").glob("*.jar"))
    )  # the same text, or the archive is ignored
    archive = [f"-XX:SharedArchiveFile={home / 'kafka.jsa'}"] if (home / "kafka.jsa").exists() else []
    return ["java", *JVM, *archive, "-cp", path, main, *arguments]


def _fetch(home: Path) -> None:
    if shutil.which("mvn") is None:
        raise KafkaMissing("Kafka's jars are not in the cache and there is no Maven (mvn) to fetch them")
    command = ["mvn", "-q", "-B", "-ntp", "-f", str(PLACE / "pom.xml"), "dependency:copy-dependencies",
               "-DincludeScope=runtime", f"-DoutputDirectory={home / 'lib'}"]  # fmt: skip
    _run(command, 300)


def _format(home: Path) -> None:
    shutil.rmtree(home / "formatted", ignore_errors=True)
    work = home / "formatting"
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir()
    _write_settings(work, free_port(), free_port())
    _run(_java(home, "kafka.tools.StorageTool", "format", "-t", CLUSTER_ID, "-c", str(work / "server.properties")), 60)
    (work / "data").rename(home / "formatted")
    shutil.rmtree(work)


def _archive(home: Path) -> None:
    """Class data sharing: a broker starts in 1 s instead of 3."""
    work = home / "archiving"
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir()
    shutil.copytree(home / "formatted", work / "data")
    port = free_port()
    _write_settings(work, port, free_port())
    command = _java(home, "kafka.Kafka", str(work / "server.properties"))
    command.insert(1, f"-XX:ArchiveClassesAtExit={home / 'kafka.partial'}")
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            deadline = time.monotonic() + READY_WITHIN  # noqa: TID251 - the time of a real process
            while time.monotonic() < deadline:  # noqa: TID251 - as above
                with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
                    break
                time.sleep(0.1)
        finally:
            process.terminate()
            process.wait(READY_WITHIN)
    if (home / "kafka.partial").exists():
        (home / "kafka.partial").rename(home / "kafka.jsa")
    shutil.rmtree(work)


def _write_settings(folder: Path, port: int, controller_port: int) -> None:
    text = (PLACE / "server.properties").read_text(encoding="utf-8")
    filled = text.format(port=port, controller_port=controller_port, data=folder / "data")
    (folder / "server.properties").write_text(filled, encoding="utf-8")


def _run(command: list[str], seconds: float) -> None:
    done = subprocess.run(command, capture_output=True, text=True, timeout=seconds, check=False)
    if done.returncode != 0:
        raise KafkaMissing(f"{command[0]} failed: {(done.stdout + done.stderr)[-1000:]}")
