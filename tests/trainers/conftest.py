"""These tests need the frameworks, which the ordinary suite's environment has not: `make trainers` and `make
tensorflow` run them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.trainers.jobs.job import Job
from tests.trainers.runs import Nursery, Run

pytest.register_assert_rewrite("tests.trainers.proofs")

from tests.trainers.proofs import Case, total_steps  # noqa: E402 - its asserts are to tell what they saw

HERE = Path(__file__).parent


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave this folder out, unless it is run with its own settings."""
    return None if config.inipath == HERE / "pytest.ini" else True


@pytest.fixture(scope="class")
def case(request: pytest.FixtureRequest) -> Case:
    found: Case = request.cls.case
    return found


@pytest.fixture(scope="class")
def nursery(case: Case) -> Iterator[Nursery]:
    found = Nursery(case.module, **dict(case.environment))
    yield found
    found.close()


@pytest.fixture(scope="class")
def calm(case: Case, nursery: Nursery, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A run that nobody disturbs. Its total does not matter for the others: the schedule does, so it is the same."""
    folder = tmp_path_factory.mktemp("calm")
    run = Run(nursery, Job(str(folder / "run"), total_steps(), world=case.world, variant=case.variant))
    run.start()
    assert run.wait() == [0] * case.world, run.log()
    return run


@pytest.fixture
def run(calm: Run, tmp_path: Path) -> Run:
    """The same training, to be disturbed."""
    job = replace(calm.job, folder=str(tmp_path / "run"), pause=0.004, save_pause=0.06)
    return Run(calm.nursery, job)
