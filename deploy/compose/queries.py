"""Queries of Prometheus servers with prometheus-api-client, which blocks: in threads, a few for each server.

Prometheus is the slow path: its numbers are as old as the last scrape. How old is asked of the server itself, once a
minute: the age of the samples that a plain selector gives, else that of `up`, which every scrape writes.
"""

from __future__ import annotations

import asyncio
import importlib.util
import json
import re
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

from autoscaler.core.policy import QueryPolicy
from autoscaler.core.query import Answer
from autoscaler.ports import QueryUnknown
from deploy.settings.prometheus import PrometheusServer, read_servers
from deploy.settings.settings import SettingProblem, Settings, SettingsRefused
from events.clock import Clock
from events.units import Instant, Seconds

if TYPE_CHECKING:
    from prometheus_api_client import PrometheusConnect

MISSING: Final = "prometheus-api-client is not installed; install it with: pip install 'relume[prometheus]'"
SERVERS_MOST: Final = 32
"""Connections kept; the one that was used least lately makes room."""
PATIENCE: Final = Seconds(10.0)
"""The longest that one question may take, to the last byte of its answer."""
BYTES_MOST: Final = 1 << 20
"""The longest answer: thousands of series, of which one number is to be made."""
DELAY_EVERY: Final = Seconds(60.0)
DELAYS_MOST: Final = 4096
THREADS: Final = 4

_SELECTOR: Final = re.compile(r"\s*[a-zA-Z_:][a-zA-Z0-9_:]*\s*(\{[^{}]*\})?\s*")


DELAY_PATIENCE: Final = Seconds(3.0)
"""A server that is too slow to say how late its numbers are still gives them: with `PATIENCE` it is within a look."""


@dataclass(slots=True)
class _Server:
    """A connection, its threads, and how late its numbers were by query, with when that was asked. `refused`: its
    secrets are read anew before it is asked again."""

    client: PrometheusConnect
    threads: ThreadPoolExecutor
    refused: bool = False
    delays: dict[str, tuple[Instant, Seconds | None]] = field(default_factory=dict)


class PrometheusQueries:
    """See `autoscaler.ports.QueryReader`."""

    def __init__(self, settings: Settings, clock: Clock) -> None:
        """Raises SettingsRefused for a file of servers that cannot be used."""
        self._clock = clock
        self._own = settings.prometheus
        self._named = _named(settings.prometheus_servers)
        self._servers: dict[str, _Server] = {}

    async def ask(self, query: QueryPolicy) -> Answer:
        """See the port."""
        server = self._server(query.server)
        loop = asyncio.get_running_loop()
        values = await loop.run_in_executor(server.threads, self._values, server, query.query)
        return Answer(values, await self._delay(server, query.query))

    def close(self) -> None:
        """See the port."""
        for server in self._servers.values():
            server.threads.shutdown(wait=False, cancel_futures=True)
        self._servers.clear()

    async def _delay(self, server: _Server, query: str) -> Seconds | None:
        """How late the numbers are, as it was found in the last minute."""
        now, known = self._clock.now(), server.delays.get(query)
        if known is not None and now - known[0] < DELAY_EVERY:
            return known[1]
        source = query if _SELECTOR.fullmatch(query) else "up"
        loop = asyncio.get_running_loop()
        try:
            asked = f"avg(time() - timestamp({source}))"
            async with asyncio.timeout(DELAY_PATIENCE):
                found = await loop.run_in_executor(server.threads, self._values, server, asked)
        except (QueryUnknown, TimeoutError):
            found = ()
        delay = Seconds(found[0]) if found and found[0] >= 0 else None  # NaN is not
        if len(server.delays) >= DELAYS_MOST:
            server.delays.clear()
        server.delays[query] = (now, delay)
        return delay

    def _values(self, server: _Server, query: str) -> tuple[float, ...]:
        """In a thread: the values of all series."""
        import requests  # noqa: PLC0415 - comes with an extra
        from prometheus_api_client.exceptions import PrometheusApiClientException  # noqa: PLC0415 - comes with an extra
        from urllib3.exceptions import ReadTimeoutError  # noqa: PLC0415 - comes with an extra

        try:
            return values_of(server.client.custom_query(query))
        except PrometheusApiClientException as error:
            server.refused = True
            raise QueryUnknown(_refusal(str(error))) from None
        except requests.JSONDecodeError:
            raise QueryUnknown("the answer is no JSON; is this the URL of a Prometheus server?") from None
        except requests.Timeout:
            raise QueryUnknown(f"no answer within {PATIENCE:.0f} s") from None
        except (requests.RequestException, OSError, UnicodeEncodeError) as error:
            server.refused = True
            late = isinstance(_reason(error), ReadTimeoutError)  # requests knows it as a broken connection
            told = f"no answer within {PATIENCE:.0f} s" if late else f"the server cannot be asked: {_short(error)}"
            raise QueryUnknown(told) from None
        except (ValueError, LookupError, TypeError, AttributeError, ArithmeticError, RecursionError) as error:
            raise QueryUnknown(f"the answer is none of Prometheus': {type(error).__name__}: {error}"[:300]) from None

    def _server(self, name: str) -> _Server:
        server = self._servers.pop(name, None)
        if server is None:
            if importlib.util.find_spec("prometheus_api_client") is None:
                raise QueryUnknown(MISSING)
            server = _Server(self._connect(self._known(name)), ThreadPoolExecutor(THREADS, "prometheus"))
            if len(self._servers) >= SERVERS_MOST:
                del self._servers[next(iter(self._servers))]  # its threads end with what they are asked now
        self._servers[name] = server  # the one used last stands last
        if server.refused:
            server.client, server.refused = self._connect(self._known(name)), False
        return server

    def _known(self, name: str) -> PrometheusServer:
        if "://" in name:
            return PrometheusServer(url=name)
        if name:
            found = self._named.get(name)
            if found is None:
                raise QueryUnknown(f"there is no server {name} in the file that --prometheus-servers names")
            return found
        if self._own is None:
            raise QueryUnknown("no Prometheus server is known; start relume with --prometheus URL, or name a server")
        return PrometheusServer(url=self._own)

    def _connect(self, server: PrometheusServer) -> PrometheusConnect:
        from prometheus_api_client import PrometheusConnect  # noqa: PLC0415 - comes with an extra

        from deploy.compose.bounded_session import BoundedSession  # noqa: PLC0415 - needs the extra

        session = BoundedSession(self._clock, PATIENCE, BYTES_MOST)
        session.verify = True if server.tls_ca is None else str(server.tls_ca)
        if server.tls_cert is not None:
            key = server.tls_key if server.tls_key is not None else server.tls_cert
            session.cert = (str(server.tls_cert), str(key))
        try:
            headers, signed = server.secret_headers(), server.sign_in()
        except (OSError, UnicodeDecodeError) as error:
            raise QueryUnknown(f"its secrets cannot be read: {error}") from None
        url = server.url.rstrip("/")
        made = PrometheusConnect(url=url, headers=headers, auth=signed, session=session, timeout=int(PATIENCE))
        session.bound(url)  # in place of what the client has put there
        return made


def values_of(result: object) -> tuple[float, ...]:
    """The numbers in the `result` of an instant query: a vector's or a scalar's. ValueError, KeyError, TypeError for
    anything else."""
    if not isinstance(result, Sequence) or isinstance(result, str):
        raise TypeError(f"a result is a list, not {type(result).__name__}")
    if len(result) == 2 and not isinstance(result[0], Mapping):
        return (float(result[1]),)
    if any("values" in one for one in result):
        raise ValueError("it is a range of values; aggregate it over time, such as with max_over_time")
    return tuple(float(one["value"][1]) for one in result)


def _refusal(text: str) -> str:
    """What the server said is wrong with the query, out of the client's words."""
    found = re.search(r"HTTP Status Code (\d+) \(b['\"](.*)['\"]\)", text, re.DOTALL)
    if found is None:
        return text[:300]
    try:
        told = json.loads(found[2].encode().decode("unicode_escape"))["error"]
    except (ValueError, KeyError, TypeError):
        told = found[2][:200]
    return f"the server answers {found[1]}: {told}"


def _reason(error: Exception) -> object:
    """Why urllib3 gave up, of an error of requests."""
    return getattr(error.args[0], "reason", None) if error.args else None


def _short(error: Exception) -> str:
    """The innermost reason, without the addresses of objects."""
    reason = _reason(error)
    return re.sub(r"<[^>]*>:? ?|^\w+\(host=[^)]*\): ?", "", str(reason or error))[:300]


def _named(path: Path | None) -> Mapping[str, PrometheusServer]:
    if path is None:
        return {}
    try:
        return read_servers(path)
    except ValueError as error:
        raise SettingsRefused([SettingProblem("prometheus_servers", str(path), str(error), "mend the file")]) from error
