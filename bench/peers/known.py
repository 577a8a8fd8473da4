"""The yardsticks of the data port, each configured for what it is measured at; those that are not installed say so."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final

from bench.peers.process import CannotRun, PeerProcess, free_port

_HAPROXY: Final = """global
  nbthread 1
  maxconn 4000
defaults
  mode http
  option http-no-delay
  option http-keep-alive
  http-reuse always
  timeout connect 5s
  timeout client 120s
  timeout server 120s
frontend front
  bind 127.0.0.1:{port}
  default_backend back
backend back
  server engine 127.0.0.1:{upstream} pool-max-conn 1024
"""
# http-no-delay: without it HAProxy gathers the small chunks of a stream (measured: 107 ms later at the median).

_NGINX: Final = """daemon off;
master_process off;
pid {folder}/nginx.pid;
error_log stderr warn;
events {{ worker_connections 4000; }}
http {{
  access_log off;
  client_body_temp_path {folder}/body; proxy_temp_path {folder}/proxy; fastcgi_temp_path {folder}/fastcgi;
  uwsgi_temp_path {folder}/uwsgi; scgi_temp_path {folder}/scgi;
  keepalive_requests 100000000;
  upstream engine {{ server 127.0.0.1:{upstream}; keepalive 1024; keepalive_requests 100000000; }}
  server {{
    listen 127.0.0.1:{port} backlog=4096;
    location / {{
      proxy_pass http://engine; proxy_http_version 1.1; proxy_set_header Connection "";
      proxy_buffering off; proxy_read_timeout 120s;
    }}
  }}
}}
"""

_ENVOY: Final = """static_resources:
  listeners:
  - address: {{socket_address: {{address: 127.0.0.1, port_value: {port}}}}}
    filter_chains:
    - filters:
      - name: envoy.filters.network.http_connection_manager
        typed_config:
          "@type": type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager
          stat_prefix: front
          route_config:
            virtual_hosts:
            - {{name: all, domains: ["*"], routes: [{{match: {{prefix: /}}, route: {{cluster: engine, timeout: 0s}}}}]}}
          http_filters:
          - name: envoy.filters.http.router
            typed_config: {{"@type": type.googleapis.com/envoy.extensions.filters.http.router.v3.Router}}
  clusters:
  - name: engine
    connect_timeout: 5s
    circuit_breakers: {{thresholds: [{{max_connections: 4000, max_pending_requests: 4000, max_requests: 4000}}]}}
    load_assignment:
      cluster_name: engine
      endpoints:
      - lb_endpoints:
        - endpoint: {{address: {{socket_address: {{address: 127.0.0.1, port_value: {upstream}}}}}}}
"""


def _program(name: str) -> str:
    found = shutil.which(name, path=f"{_path()}:/usr/sbin:/usr/local/sbin")
    if found is None:
        raise CannotRun(f"{name} is not installed")
    return found


def _path() -> str:
    return os.environ.get("PATH", "")


def _haproxy(folder: Path, upstream: int) -> PeerProcess:
    program, port = _program("haproxy"), free_port()
    file = folder / "haproxy.cfg"
    file.write_text(_HAPROXY.format(port=port, upstream=upstream), encoding="utf-8")
    return PeerProcess("HAProxy", [program, "-db", "-q", "-f", str(file)], port, folder / "haproxy.log")


def _nginx(folder: Path, upstream: int) -> PeerProcess:
    program, port = _program("nginx"), free_port()
    file = folder / "nginx.conf"
    file.write_text(_NGINX.format(port=port, upstream=upstream, folder=folder), encoding="utf-8")
    command = [program, "-e", "stderr", "-p", str(folder), "-c", str(file)]
    return PeerProcess("nginx", command, port, folder / "nginx.log")


def _envoy(folder: Path, upstream: int) -> PeerProcess:
    program, port = _program("envoy"), free_port()
    file = folder / "envoy.yaml"
    file.write_text(_ENVOY.format(port=port, upstream=upstream), encoding="utf-8")
    command = [program, "-c", str(file), "--concurrency", "1", "--log-level", "warning", "--use-dynamic-base-id"]
    return PeerProcess("Envoy", command, port, folder / "envoy.log")


def _aiohttp(folder: Path, upstream: int) -> PeerProcess:
    port = free_port()
    arguments = ["-m", "bench.peers.aiohttp_proxy", "--port", str(port), "--upstream-port", str(upstream)]
    return PeerProcess("aiohttp proxy", [sys.executable, *arguments], port, folder / "aiohttp.log")


PEERS: Final[dict[str, Callable[[Path, int], PeerProcess]]] = {
    "HAProxy": _haproxy,
    "nginx": _nginx,
    "Envoy": _envoy,
    "aiohttp proxy": _aiohttp,
}
