"""The parent of one engine: it outlives nothing and leaves nothing behind.

Started as ``python -I -S shim.py LOG LOG_BYTES GRACE ORPHAN_GRACE NICE CORES DOOR DOOR_OPEN WORD HEADER ARGV...``
with the engine's environment as its own. Standard library only, few imports: this is on the path of every cold start.

* Standard input is the *life pipe*: ``t`` asks the engine's processes to end (SIGTERM, after GRACE seconds SIGKILL),
  ``k`` kills them at once, end of file (relume is dead, however it died) is ``t`` with ORPHAN_GRACE.
* With a DOOR (the path of a socket) the engine serves on after that: for DOOR_OPEN seconds the next relume may connect,
  and that connection then is life pipe and report in one. It hears ``adopted ENGINE SHIM`` first, or ``adopted ENGINE
  SHIM stopping`` when the engine was told to end.
* How the engine ended is also written to WORD (a path, or empty: nowhere), for who comes when all is over.
* Standard output says what happened, a line each: ``pid N``, ``error ERRNO TEXT``, ``exit CODE``, ``signal NUMBER``,
  and ``gone`` once no process of the engine is left.
* The engine's output goes to LOG; at LOG_BYTES it becomes ``LOG.1`` and starts anew.

The engine leads a session and process group of its own. On Linux the shim is the *subreaper* of all its descendants
(prctl(2)), so that one that forks twice and leaves the group is still a child here and is found; and the engine asks to
be killed when the shim dies (PR_SET_PDEATHSIG). That signal follows the forking thread, so the shim has one thread
only, and it looks at its own parent when it gets one. Elsewhere the group is what can be found; the next start of
relume looks for the rest. Timers are the kernel's (setitimer): the shim reads no clock.
"""

# ruff: noqa: PTH105, PTH108, PTH123, PTH208 - pathlib costs as much start-up time as all other imports together

from __future__ import annotations

import ctypes
import os
import select
import signal
import sys

LIFE, REPORT = 0, 1
CHUNK = 65536
RESCAN = 0.05  # seconds between looks at descendants that were killed and are not gone
PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36  # linux/prctl.h
LINUX = sys.platform == "linux"


def prctl(option: int, argument: int) -> None:
    """Linux's prctl(2); nothing elsewhere. A kernel that refuses leaves the pipe and the group, which suffice."""
    if LINUX:
        ctypes.CDLL(None).prctl(option, argument, 0, 0, 0)


def report(line: str) -> bool:
    """Tell relume; False when it is dead, which the life pipe tells too."""
    try:
        os.write(REPORT, line.encode(errors="replace") + b"\n")
    except OSError:
        return False
    return True


def leave_word(path: str, line: str) -> None:
    """Say it to who comes later, whole or not at all. What cannot be written is not known then."""
    if path:
        try:
            with open(path + ".partial", "w") as file:
                file.write(line + "\n")
            os.replace(path + ".partial", path)
        except OSError:
            return


class Log:
    """A file with a cap. What cannot be written (disk full) is counted and dropped: no engine stops for its log."""

    def __init__(self, path: str, limit: int) -> None:
        self.path = path
        self.limit = limit
        self.lost = 0
        self._open()

    def _open(self) -> None:
        self.fd = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        self.size = os.fstat(self.fd).st_size

    def write(self, data: bytes) -> None:
        try:
            if self.size and self.size + len(data) > self.limit:
                os.replace(self.path, self.path + ".1")
                os.close(self.fd)
                self._open()
            self.size += os.write(self.fd, data)
        except OSError:
            self.lost += len(data)


def run_engine(argv: list[str], output: int, niceness: int, cores: str) -> int:
    """Fork and execute the engine; returns its pid once it runs. Raises OSError when it cannot be executed."""
    failed_read, failed_write = os.pipe()
    shim = os.getpid()
    pid = os.fork()
    if pid == 0:
        try:
            become_engine(argv, output, shim, (niceness, cores))
        except OSError as error:
            os.write(failed_write, f"{error.errno or 0} {error.strerror}".encode(errors="replace"))
        finally:
            os._exit(127)
    os.close(failed_write)
    said = os.read(failed_read, 4096).decode(errors="replace")  # empty: executed, and so the pipe was closed
    os.close(failed_read)
    if said:
        os.waitpid(pid, 0)
        number, _, text = said.partition(" ")
        raise OSError(int(number), text)
    return pid


def become_engine(argv: list[str], output: int, shim: int, limits: tuple[int, str]) -> None:
    """In the child: own session, dies with the shim, own signals back to default, then execute."""
    os.setsid()
    prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != shim:  # the shim died before the line above
        os._exit(127)
    for number in (signal.SIGPIPE, signal.SIGINT, signal.SIGHUP, signal.SIGTERM, signal.SIGCHLD, signal.SIGALRM):
        signal.signal(number, signal.SIG_DFL)
    niceness, cores = limits
    os.nice(niceness)
    if cores and hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {int(core) for core in cores.split(",")})
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(output, 1)
    os.dup2(output, 2)
    os.execvpe(argv[0], argv, os.environ)  # noqa: S606 - the command is the user's, and no shell sees it


def parents() -> dict[int, int]:
    """Parent of each process on Linux; empty elsewhere."""
    found: dict[int, int] = {}
    if not LINUX:
        return found
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                with open(f"/proc/{name}/stat", "rb") as file:
                    # the command's name stands in brackets and may hold anything, also brackets
                    found[int(name)] = int(file.read().rpartition(b")")[2].split()[1])
            except OSError:
                continue  # it ended meanwhile
    return found


def descendants(root: int) -> list[int]:
    """All processes below `root`, on Linux."""
    children: dict[int, list[int]] = {}
    for pid, parent in parents().items():
        children.setdefault(parent, []).append(pid)
    found: list[int] = []
    waiting = [root]
    while waiting:
        below = children.get(waiting.pop(), [])
        found += below
        waiting += below
    return found


def send(pid: int, number: int, *, group: bool = False) -> bool:
    """Signal a process or a group; False when there is none (or, on macOS, only zombies)."""
    try:
        (os.killpg if group else os.kill)(pid, number)
    except OSError:
        return False
    return True


class Door:
    """Where another relume takes this replica over. `open_for` 0: there is none."""

    def __init__(self, path: str, open_for: float) -> None:
        self.path = path
        self.open_for = open_for
        self.listening = None
        if open_for > 0:
            import socket  # noqa: PLC0415 - some milliseconds that only who has a door pays

            self.listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            self.close()
            folder, _, name = path.rpartition("/")
            # A socket's address may have 107 bytes, and folders are deep.
            at = os.open(folder or ".", os.O_RDONLY)
            self.listening.bind(f"/proc/self/fd/{at}/{name}" if LINUX else path)
            os.close(at)
            self.listening.listen(4)

    def accept(self) -> None:
        """The connection that waits becomes life pipe and report."""
        assert self.listening is not None
        connection, _ = self.listening.accept()
        os.dup2(connection.fileno(), LIFE)
        os.dup2(connection.fileno(), REPORT)
        connection.close()

    def close(self) -> None:
        """Nobody comes any more."""
        try:
            os.unlink(self.path)
        except OSError:
            return  # it was not there


class Shim:
    """Waits for the life pipe, the engine's output, its children and its timer; ends when all are gone."""

    word = ""
    """Where it is written how the engine ended."""

    def __init__(self, engine: int, output: int, log: Log, graces: tuple[float, float], door: Door) -> None:
        self.engine = engine
        self.output = output
        self.log = log
        self.grace, self.orphan_grace = graces
        self.door = door
        self.parent = os.getppid()
        self.life_open = True
        self.engine_ended = False
        self.stopping = False
        self.killing = False
        self.told = False  # to end, by somebody

    def signal_all(self, number: int) -> None:
        """Signal the engine's group and every descendant that left it, each once."""
        send(self.engine, number, group=True)
        for pid in descendants(os.getpid()):
            try:
                outside = os.getpgid(pid) != self.engine
            except OSError:
                continue  # it ended meanwhile
            if outside:
                send(pid, number)

    def stop(self, grace: float) -> None:
        """Ask all to end; the timer kills what is left. Stopped (SIGSTOP) ones are continued so that they can."""
        self.told = True
        if not self.stopping:
            self.stopping = True
            self.signal_all(signal.SIGTERM)
            self.signal_all(signal.SIGCONT)
        if not self.killing:
            signal.setitimer(signal.ITIMER_REAL, max(grace, 0.001))

    def kill(self) -> None:
        """Kill all, and look again soon: a fork may have slipped through."""
        self.stopping = self.killing = True
        self.signal_all(signal.SIGKILL)
        signal.setitimer(signal.ITIMER_REAL, RESCAN)

    def hear_life(self) -> None:
        """Read what relume wants; the end of the pipe is its death."""
        said = os.read(LIFE, 64)
        if not said:
            self.life_open = False
            if self.door.listening is None or self.stopping:
                self.stop(self.orphan_grace)
            else:
                signal.setitimer(signal.ITIMER_REAL, self.door.open_for)
        elif b"k" in said:
            self.told = True
            self.kill()
        else:
            self.stop(self.grace)

    def hear_door(self) -> None:
        """Another relume takes over."""
        if not self.stopping:
            signal.setitimer(signal.ITIMER_REAL, 0)
        self.door.accept()
        self.life_open = True
        report(f"adopted {self.engine} {os.getpid()}" + (" stopping" if self.told else ""))

    def heard(self) -> set[int]:
        """Who may tell us what to do: relume, else, while the engine serves on without one, whoever is at the door."""
        if self.life_open:
            return {LIFE}
        return set() if self.door.listening is None else {self.door.listening.fileno()}

    def hear_signals(self, numbers: bytes) -> None:
        """Act on what the kernel sent."""
        for number in numbers:
            if number == signal.SIGALRM:
                if self.heard() and not self.life_open and not self.stopping:  # nobody came
                    self.stop(self.orphan_grace)
                else:
                    self.kill()
            elif number == signal.SIGTERM:
                self.stop(self.grace)
            elif number == signal.SIGUSR1 and self.door.listening is None and os.getppid() != self.parent:
                self.stop(self.orphan_grace)

    def reap(self) -> bool:
        """Collect who ended; True when nobody is left."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return LINUX or not send(self.engine, 0, group=True)
            if pid == 0:
                return False
            if pid == self.engine:
                self.engine_ended = True
                self.copy_rest()
                signalled = os.WIFSIGNALED(status)
                line = f"signal {os.WTERMSIG(status)}" if signalled else f"exit {os.WEXITSTATUS(status)}"
                leave_word(self.word, line)
                report(line)
                if not self.stopping:  # it ended by itself: what it left behind has no purpose
                    self.kill()

    def copy_output(self) -> bool:
        """Log what the engine wrote; False when there is no more (now, or at all)."""
        try:
            data = os.read(self.output, CHUNK)
        except BlockingIOError:
            return False
        self.log.write(data)
        return bool(data)

    def copy_rest(self) -> None:
        """Its last words, before anybody hears that it ended. Bounded: those it left behind may write for ever."""
        for _ in range(256):
            if not self.copy_output():
                return

    def run(self, signals: int) -> None:
        """Until all are gone."""
        output = self.output
        watched = {output, signals}
        while not self.reap():
            heard = self.heard()
            # where we are no subreaper nobody tells when the rest of the group is gone
            patience = RESCAN if self.engine_ended and not LINUX else None
            ready = select.select([*watched, *heard], [], [], patience)[0]
            if output in ready and not self.copy_output():
                watched.discard(output)
            if signals in ready:
                self.hear_signals(os.read(signals, 256))
            if LIFE in ready:
                self.hear_life()
            elif heard & set(ready):
                self.hear_door()
        self.copy_rest()
        self.door.close()


def listen_to_signals() -> int:
    """A pipe that gets the number of each signal that arrives."""
    read, write = os.pipe()
    os.set_blocking(write, False)
    signal.set_wakeup_fd(write, warn_on_full_buffer=False)
    for number in (signal.SIGCHLD, signal.SIGALRM, signal.SIGTERM, signal.SIGUSR1):
        signal.signal(number, lambda *_: None)
    for number in (signal.SIGINT, signal.SIGHUP):  # a terminal's: relume gets them too and decides
        signal.signal(number, signal.SIG_IGN)
    return read


def main(arguments: list[str]) -> int:
    """Start the engine, watch it, and return when nothing of it is left."""
    path, log_bytes, grace, orphan_grace, niceness, cores, door_path, door_open, word, header, *argv = arguments
    signals = listen_to_signals()
    prctl(PR_SET_PDEATHSIG, signal.SIGUSR1)
    prctl(PR_SET_CHILD_SUBREAPER, 1)
    output, engine_output = os.pipe()
    os.set_blocking(output, False)
    try:
        log = Log(path, int(log_bytes))
        log.write(header.encode(errors="replace") + b"\n")
        door = Door(door_path, float(door_open))
        engine = run_engine(argv, engine_output, int(niceness), cores)
    except OSError as error:
        report(f"error {error.errno or 0} {error.strerror}")
        report("gone")
        return 1
    os.close(engine_output)
    shim = Shim(engine, output, log, (float(grace), float(orphan_grace)), door)
    shim.word = word
    try:
        report(f"pid {engine}")
        shim.run(signals)
    except BaseException:
        shim.signal_all(signal.SIGKILL)  # a fault here must not leave an engine behind; its parent then sees no `gone`
        raise
    report("gone")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
