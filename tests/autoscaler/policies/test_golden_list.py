"""The list of golden cases in docs/how-to/scaling.md is whole, and what it says of each is so."""

from __future__ import annotations

import ast
import re
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).parents[3]
LIST = ROOT / "docs" / "how-to" / "scaling.md"
TESTS = (*sorted((ROOT / "tests" / "autoscaler" / "policies").glob("test_*.py")), ROOT / "tests/autoscaler/test_lag.py")

CASES = frozenset({1, 3, 4, 6, 7, 9, 10, 12, 13, 15, 16, 18, 19, 21, 22, 24, 25, 27, 28, 30, 31, 33, 34, 36, 37, 39})
"""All that have a number in our notes on Knative and KEDA (knative/serving 98e5ef90, kedacore/keda 8b4f083c)."""


def rows(text: str, header: str) -> list[list[str]]:
    """The cells of the table whose first header is this."""
    lines = text.splitlines()
    begin = next(at for at, line in enumerate(lines) if line.startswith(f"| {header} |"))
    found = []
    for line in lines[begin + 2 :]:
        if not line.startswith("|"):
            break
        found.append([cell.strip() for cell in line.strip("|").split("|")])
    return found


def numbers(cell: str) -> list[int]:
    return [int(one) for one in re.findall(r"\b\d+\b", cell)]


def named(path: Path) -> set[int]:
    """Cases that a test's id or docstring names."""
    found = set[int]()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.keyword) and node.arg == "id":
            text = ast.unparse(node.value).lstrip("f").strip("'\"")
            found |= {int(text.split(":")[0])} if text.split(":")[0].isdigit() else set()
        elif isinstance(node, ast.FunctionDef):
            told = re.match(r"Cases? ([\d, and]+)", ast.get_docstring(node) or "")
            found |= set(numbers(told[1])) if told else set()
    return found


def test_each_case_is_listed_with_what_becomes_of_it() -> None:
    """Once; but for the one of which one part is a policy's, and one a number's from outside."""
    listed = Counter(number for row in rows(LIST.read_text(encoding="utf-8"), "case") for number in numbers(row[0]))
    assert set(listed) == CASES
    assert {number for number, times in listed.items() if times > 1} == {31}


def test_what_passes_has_a_test_and_what_has_none_says_why() -> None:
    """Named by its number, so that it can be found; of the others it is said why they concern no policy."""
    tested = set[int]().union(*(named(path) for path in TESTS))
    for case, _, here in rows(LIST.read_text(encoding="utf-8"), "case"):
        if here.startswith("do"):
            assert "apply: " in here, case
            assert not tested & set(numbers(case)), case
        else:
            assert set(numbers(case)) <= tested, case
