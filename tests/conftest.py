"""`needs` marks and the summary of what was left out; the order of tests; what each leaves behind."""

from __future__ import annotations

import gc
import inspect
import signal
from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING

import hypothesis
import pytest

from deploy.cli.versions import hot_path

pytest.register_assert_rewrite("tests.support")  # before it is imported: what its asserts saw is told as tests' is

from tests.support.longest import longest_first  # noqa: E402 - as said
from tests.support.needs import NEEDS, required  # noqa: E402 - as said
from tests.support.services import Services  # noqa: E402 - as said
from tests.support.unsteady import ENDED  # noqa: E402 - as said

if TYPE_CHECKING:
    from tests.support.kafka_broker import Broker
    from tests.support.kube_plane import ControlPlane

hypothesis.settings.register_profile("house", deadline=None)  # the time of one example says nothing on a shared machine
hypothesis.settings.load_profile("house")

SERVICES = pytest.StashKey[Services]()


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "needs(name): skipped, or failed with RELUME_REQUIRE=all, where it is missing")
    config.option.loadscopereorder = False  # xdist would put the files with most tests first, and the longest last
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # as in a shell's background; processes under test inherit it
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    items[:] = longest_first(items)
    config.stash[SERVICES] = Services(items)


def pytest_collection_finish() -> None:
    """What was imported stays: collections of garbage need not look at it."""
    gc.collect()
    gc.freeze()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> Iterator[None]:
    yield
    item.config.stash[SERVICES].after(item, nextitem)


@pytest.fixture(autouse=True)
def own_leaks(request: pytest.FixtureRequest) -> Iterator[None]:
    """What a test left open is complained of in that test, not in one that comes later."""
    yield
    if inspect.iscoroutinefunction(request.function) or request.node.get_closest_marker("slow"):
        gc.collect()


def pytest_report_header() -> str:
    return f"relume: the hot path runs {hot_path()} (`make compiled` compiles it, RELUME_PURE=1 leaves it)"


def pytest_runtest_setup(item: pytest.Item) -> None:
    for mark in item.iter_markers("needs"):
        for name in mark.args:
            need = NEEDS[name]
            if need.there():
                continue
            if required():
                pytest.fail(f"{name} is missing and RELUME_REQUIRE=all: {need.remedy}", pytrace=False)
            pytest.skip(f"needs {name}: {need.remedy}")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    skipped = Counter(
        name
        for report in terminalreporter.stats.get("skipped", [])
        for name in NEEDS
        if f"needs {name}:" in str(report.longrepr)
    )
    missing = [name for name in NEEDS if not NEEDS[name].there()]
    terminalreporter.section("what this machine lacked")
    if not missing:
        terminalreporter.line("nothing: " + ", ".join(sorted(NEEDS)) + " are all there")
    for name in missing:
        need = NEEDS[name]
        terminalreporter.line(f"{name}: left out {skipped[name]} {need.purpose}; to have them, {need.remedy}")


def pytest_sessionfinish(session: pytest.Session) -> None:
    if required() and not hasattr(session.config, "workerinput"):
        missing = [name for name, need in NEEDS.items() if not need.there()]
        if missing:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED
    if session.config.pluginmanager.hasplugin("cacheprovider") and not hasattr(session.config, "workerinput"):
        assert session.config.cache is not None
        session.config.cache.set(ENDED, int(session.exitstatus))


@pytest.fixture
def plane() -> Iterator[ControlPlane]:
    """The Kubernetes control plane that tests share; whatever is done to it, it runs again afterwards."""
    from tests.support.kube_plane import shared_plane  # noqa: PLC0415 - four processes, for those who ask

    found = shared_plane()
    yield found
    found.revive()


@pytest.fixture
def broker() -> Iterator[Broker]:
    """The Kafka broker that tests share, empty; whatever is done to it, it runs again afterwards."""
    from tests.support.kafka_broker import shared_broker  # noqa: PLC0415 - needs an extra
    from tests.support.kafka_logs import collect_leaks, wipe  # noqa: PLC0415 - as above

    found = shared_broker()
    wipe(found)
    yield found
    found.revive()
    collect_leaks()
