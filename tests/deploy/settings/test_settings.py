"""The process's settings: where they come from, what is refused and in which words."""

from __future__ import annotations

from pathlib import Path

import pytest

from deploy.settings.events_url import KafkaEvents, MemoryEvents, SqliteEvents, parse_events_url
from deploy.settings.settings import (
    LogLevel,
    Settings,
    SettingsRefused,
    default_data_dir,
    flag,
    is_loopback,
    load_settings,
    variable,
)


@pytest.fixture(autouse=True)
def no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """No RELUME_ variable of the machine reaches these tests."""
    for name in Settings.model_fields:
        monkeypatch.delenv(variable(name), raising=False)


@pytest.fixture
def file(tmp_path: Path) -> str:
    """A file that exists, for certificates and the like."""
    path = tmp_path / "some.pem"
    path.write_text("x")
    return str(path)


def refused(**given: object) -> list[str]:
    with pytest.raises(SettingsRefused) as caught:
        load_settings(given)
    return [str(problem) for problem in caught.value.problems]


def test_the_defaults() -> None:
    """Ports of design §12 on loopback, a SQLite log in the data folder."""
    settings = load_settings({})
    assert (settings.gateway_port, settings.admin_port) == (8080, 8081)
    assert (settings.gateway_host, settings.admin_host) == ("127.0.0.1", "127.0.0.1")
    assert settings.events_url == SqliteEvents(settings.data_dir / "events.db")
    assert settings.retention.age == 7 * 86400
    assert settings.admin_token() is None


def test_the_data_folder_follows_xdg(monkeypatch: pytest.MonkeyPatch) -> None:
    """$XDG_DATA_HOME/relume if that is an absolute path, else ~/.local/share/relume."""
    monkeypatch.setenv("XDG_DATA_HOME", "/var/data")
    assert default_data_dir() == Path("/var/data/relume")
    monkeypatch.setenv("XDG_DATA_HOME", "relative")
    assert default_data_dir() == Path.home() / ".local" / "share" / "relume"
    assert load_settings({}).data_dir == default_data_dir()


def test_the_command_line_goes_before_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is given stands before RELUME_…, which stands before the default; None is not given."""
    monkeypatch.setenv("RELUME_GATEWAY_PORT", "9000")
    monkeypatch.setenv("RELUME_DRAIN_BOUND", "5s")
    monkeypatch.setenv("RELUME_LOG_LEVEL", "debug")
    settings = load_settings({"gateway_port": None, "admin_port": 9001, "memory": "4Gi"})
    assert (settings.gateway_port, settings.admin_port, settings.drain_bound) == (9000, 9001, 5.0)
    assert (settings.memory, settings.log_level) == (4 << 30, LogLevel.DEBUG)


EVERY = {
    "data_dir": "/elsewhere", "node_name": "other", "events": "kafka://b:9092", "events_age": "1d",
    "events_bytes": "2Gi",
    "gateway_host": "0.0.0.0", "gateway_port": 1, "max_body_bytes": "1Mi", "hold_max_requests": 5,
    "hold_max_bytes": "1Mi", "drain_bound": "1s", "access_log": "", "admin_host": "localhost", "admin_port": 2,
    "gpus": 3, "cpu": 2.5, "memory": "1Gi", "log_level": "error", "log_format": "json",
    "kafka_partitions": 3, "kafka_replication": 3, "kafka_create_topics": False, "kafka_compression": "zstd",
    "kafka_security": "sasl_ssl", "kafka_sasl_mechanism": "SCRAM-SHA-512", "kafka_username": "me",
    "peer_address": "10.0.0.1:8082", "peer_listen": "0.0.0.0:8082",
    "adopt_within": "5m", "inference_reply_topics": "answers",
    "cluster": "kubernetes", "kube_context": "prod", "kube_namespace": "models", "kube_weights_claim": "w",
    "kube_enrolled": "leaderworkersets.leaderworkerset.x-k8s.io",
    "cache_capacity": "1Gi", "cache_prewarm_rate": "1Mi", "cache_scrub_rate": "1Mi", "prometheus": "http://p:9090",
    "sleep_memory": "1Gi", "cache_peer_address": "10.0.0.1:8083", "cache_peer_listen": "0.0.0.0:8083",
}  # fmt: skip
FILES = (
    "gateway_tls_cert", "gateway_tls_key", "admin_tls_cert", "admin_tls_key", "admin_token_file", "admin_client_ca",
    "gpu_limiter", "kafka_tls_ca", "kafka_tls_cert", "kafka_tls_key", "kafka_password_file", "kafka_clusters",
    "cache_quotas", "pod_resources",
    "cache_peer_token_file", "cache_peer_tls_ca", "cache_peer_tls_cert", "cache_peer_tls_key",
    "kubeconfig", "prometheus_servers", "peer_secret_file", "peer_tls_ca", "peer_tls_cert", "peer_tls_key",
)  # fmt: skip


TOKENS = {"kafka_security": "sasl_ssl", "kafka_sasl_mechanism": "OAUTHBEARER"}


def test_every_setting_can_come_from_the_environment(monkeypatch: pytest.MonkeyPatch, file: str) -> None:
    """Each field has a variable, and its value arrives."""
    assert {*EVERY, *FILES, "kafka_token_file"} == set(Settings.model_fields)  # it goes with no password: below
    given = EVERY | dict.fromkeys(FILES, file)
    for name, value in given.items():
        monkeypatch.setenv(variable(name), str(value))
    assert load_settings({}) == load_settings(given)
    monkeypatch.undo()
    assert load_settings(given) != load_settings({})


def test_a_token_for_kafka(file: str) -> None:
    """Takes the place of user and password."""
    given = {"kafka_security": "sasl_ssl", "kafka_sasl_mechanism": "OAUTHBEARER", "kafka_token_file": file}
    assert load_settings(given | {"events": "kafka://b:9092"}).kafka_token_file == Path(file)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"admin_port": 70000}, "admin_port (--admin-port or RELUME_ADMIN_PORT) is 70000"),
        ({"gateway_port": 8081}, "gateway_port and admin_port are both 8081; change one of them"),
        ({"events": "kafka://b"}, "kafka: 'b' is no HOST:PORT; write kafka://HOST:PORT[,HOST:PORT]"),
        ({"events": "postgres:x"}, "'postgres:x' is not an address of an event log; write memory:, sqlite:PATH"),
        ({"events": "sqlite:"}, "sqlite: needs the path of a file"),
        ({"events": "memory:x"}, "memory: takes no path"),
        ({"events": "kafka://a:9092,b:0"}, "kafka: 'b:0' is no HOST:PORT"),
        ({"events": "kafka://me:secret@b:9092"}, "takes no user here; write kafka_username and kafka_password_file"),
        ({"kafka_security": "sasl_ssl"}, "needs kafka_sasl_mechanism, kafka_username and kafka_password_file; give"),
        (TOKENS, "kafka_sasl_mechanism is OAUTHBEARER, which needs kafka_token_file"),
        (TOKENS | {"kafka_token_file": __file__, "kafka_username": "me"}, "OAUTHBEARER, which takes no kafka_username"),
        (TOKENS | {"kafka_sasl_mechanism": "GSSAPI", "kafka_token_file": __file__}, "takes no kafka_token_file"),
        (TOKENS | {"kafka_sasl_mechanism": "AWS_MSK_IAM"}, "needs a package; pip install botocore"),
        ({"kafka_token_file": __file__}, "kafka_security is plaintext, which takes no user"),
        ({"kafka_username": "me"}, "kafka_security is plaintext, which takes no user; set it to sasl_ssl"),
        ({"kafka_tls_ca": __file__}, "kafka_security is plaintext, which uses no certificates; set it to ssl"),
        ({"kafka_security": "ssl", "kafka_tls_cert": __file__}, "kafka_tls_cert and kafka_tls_key belong together"),
        ({"drain_bound": "10"}, "'10' is not a duration; write a number and a unit"),
        ({"gpus": -1}, "gpus (--gpus or RELUME_GPUS) is -1"),
        ({"admin_token_file": "/none.pem"}, "there is no file /none.pem"),
        ({"admin_host": "0.0.0.0"}, "can be reached from outside, and whoever can apply a model can run commands"),
        ({"admin_host": "example.org"}, "give admin_token_file or admin_client_ca, or bind it to 127.0.0.1"),
        ({"cache_peer_address": "nowhere"}, "is 'nowhere': it is no HOST:PORT; write such as 10.0.0.1:8083"),
        ({"cache_peer_address": "10.0.0.1:8083"}, "are not for all; give cache_peer_token_file, the same on all nodes"),
        ({"cache_peer_listen": "0.0.0.0:1"}, "an agent without cache_peer_address asks no other node; give it too"),
        (
            {"cache_peer_address": "h:1", "cache_peer_token_file": __file__, "cache_peer_tls_key": __file__},
            "cache_peer_tls_key belong together; give all three",
        ),
        ({"peer_address": "nowhere"}, "is 'nowhere': it is no HOST:PORT; write such as 10.0.0.1:8082"),
        ({"peer_listen": "0.0.0.0:70000"}, "peer_listen (--peer-listen or RELUME_PEER_LISTEN) is '0.0.0.0:70000'"),
        ({"inference_reply_topics": "answers, a b"}, "'a b' is no name of a topic; write letters, digits"),
        ({"inference_reply_topics": "relume.models"}, "'relume.models' is one of ours"),
        (
            {"peer_address": "10.0.0.1:8082"},
            "can be reached from outside, and who calls there can take slots; give peer",
        ),
        ({"peer_listen": "127.0.0.1:1"}, "a gateway without peer_address talks to no other one; give it too"),
        ({"peer_address": "127.0.0.1:0", "peer_tls_ca": __file__}, "peer_tls_key belong together; give all three"),
        ({"node_name": "Not A Label"}, "lower-case letters, digits and dashes; write such as gw-1"),
        ({"colour": "red"}, "there is no such setting; leave it out"),
        ({"log_level": "loud"}, "log_level"),
    ],
)
def test_wrong_settings_are_refused_in_words(given: dict[str, object], said: str) -> None:
    """The refusal names the option, the variable, the rule and the remedy."""
    (problem,) = refused(**given)
    assert said in problem


def test_all_wrong_settings_are_told_at_once() -> None:
    """Two mistakes, two problems."""
    assert len(refused(admin_port=-1, events="x")) == 2


def test_half_of_a_pair_is_refused(file: str) -> None:
    """A certificate without its key, and a client CA without TLS."""
    assert "gateway_tls_cert is given without gateway_tls_key; give both" in refused(gateway_tls_cert=file)[0]
    assert "admin_tls_key is given without admin_tls_cert; give both" in refused(admin_tls_key=file)[0]
    assert "admin_client_ca needs TLS" in refused(admin_client_ca=file)[0]


def test_the_admin_port_may_be_opened_with_a_token_or_a_client_ca(file: str) -> None:
    """Either is enough to bind the admin port to an outside address."""
    assert load_settings({"admin_host": "0.0.0.0", "admin_token_file": file}).admin_host == "0.0.0.0"
    tls = {"admin_tls_cert": file, "admin_tls_key": file, "admin_client_ca": file}
    assert load_settings({"admin_host": "::", **tls}).admin_host == "::"


def test_ports_may_both_be_any_free_one() -> None:
    """Port 0 twice is no conflict."""
    assert load_settings({"gateway_port": 0, "admin_port": 0}).admin_port == 0


def test_the_token_is_read_and_must_be_long(tmp_path: Path) -> None:
    """The line end is not part of it; short, spaced and binary ones are refused; its value is never shown."""
    path = tmp_path / "token"
    path.write_text("0123456789abcdef\n")
    settings = load_settings({"admin_token_file": path})
    assert settings.admin_token() == "0123456789abcdef"
    assert "0123456789abcdef" not in repr(settings)
    for bad in (b"short", b"two words that are long", b"\xff" * 20):
        path.write_bytes(bad)
        with pytest.raises(SettingsRefused, match="openssl rand"):
            settings.admin_token()


@pytest.mark.parametrize(
    ("host", "loopback"),
    [("127.0.0.1", True), ("127.9.9.9", True), ("::1", True), ("[::1]", True), ("localhost", True),
     ("0.0.0.0", False), ("::", False), ("10.0.0.1", False), ("localhost.example.org", False), ("", False)],
)  # fmt: skip
def test_loopback(host: str, *, loopback: bool) -> None:
    """Only addresses that this machine alone can reach."""
    assert is_loopback(host) == loopback


def test_event_log_addresses() -> None:
    """memory:, sqlite: with relative, absolute and home paths, and with two slashes."""
    assert parse_events_url("memory:") == MemoryEvents()
    assert parse_events_url("memory://") == MemoryEvents()
    assert parse_events_url("sqlite:a/b.db") == SqliteEvents(Path("a/b.db"))
    assert parse_events_url("sqlite:///a/b.db") == SqliteEvents(Path("/a/b.db"))
    assert parse_events_url("sqlite:~/b.db") == SqliteEvents(Path.home() / "b.db")
    assert parse_events_url("kafka://a.b:9092") == KafkaEvents(("a.b:9092",))
    assert parse_events_url("kafka://[::1]:1,b:2/") == KafkaEvents(("[::1]:1", "b:2"))


def test_names() -> None:
    """Options and variables are made of the field's name."""
    assert (flag("admin_port"), variable("admin_port")) == ("--admin-port", "RELUME_ADMIN_PORT")
