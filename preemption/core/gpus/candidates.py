"""Every way in which one task could be placed on some nodes, and what would be free then."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from preemption.core.gpus.mig import MEDIA, family
from preemption.core.gpus.shapes import MILLI, Mode, Spot, Task
from preemption.core.gpus.space import Ints, Space
from preemption.core.gpus.topology import Domain, apart, pick, pick_cards


@dataclass(frozen=True, slots=True)
class Candidates:
    """Ways to place one task: the node's row, the first card, and what the node would have free afterwards."""

    rows: Ints
    columns: Ints
    cpu: Ints
    free: Ints
    state: Ints


def candidates(space: Space, task: Task, rows: Ints) -> Candidates:
    """All ways on nodes `rows`, on each of which the task fits; of cards that are alike only the first.

    Cards that are alike give alike scores, so leaving the others out changes no choice.
    """
    if not task.gpus:
        cpu, columns = space.cpu[rows] - task.cpu_milli, np.full(len(rows), -1, dtype=np.int64)
        return Candidates(rows, columns, cpu, space.free[rows], space.state[rows])
    if task.gpus > 1:
        return _several(space, task, rows)
    fits = space.fits_cards(task, rows)
    look = space.free[rows] * 2 * MEDIA + space.state[rows] if task.profile else space.free[rows]
    for column in range(1, fits.shape[1]):  # the same look and the same need further left: leave this one out
        alike = (look[:, :column] == look[:, column, None]) & fits[:, :column]
        if task.gpu_bytes or not space.is_plain:
            alike &= _same_kind(space, rows, column)
        fits[:, column] &= ~alike.any(axis=1)
    which, columns = np.nonzero(fits)
    at = rows[which]
    free, state = space.free[at], space.state[at]
    if task.profile:
        _put_instances(space, task.profile, at, columns, (free, state))
    else:
        free[np.arange(len(at)), columns] -= space.need(task)[at, columns]
    return Candidates(at, columns, space.cpu[at] - task.cpu_milli, free, state)


def spot_at(space: Space, task: Task, row: int, column: int) -> Spot:
    """The spot of a task on a node, with the card that was chosen for it (-1: none)."""
    if not task.gpus:
        return Spot(row)
    if task.profile:
        tables = family(space.nodes[row].cards[column].family)
        start = tables.start(task.profile, int(space.state[row, column]))
        assert start is not None
        return Spot(row, (column,), 0, start)
    if task.gpus == 1 and not (task.whole and space.has_domains):
        return Spot(row, (column,), int(space.need(task)[row, column]))
    return Spot(row, pick_cards(space.nodes[row].cards, _idle(space, row), task.gpus), MILLI)


def losses(space: Space, task: Task, rows: Ints) -> Ints:
    """By node of `rows`, on each of which a task that takes several cards fits: thousandths of a card that are lost
    because its cards there would not reach each other over NVLink."""
    return np.array([_loss(space, row, task.gpus) for row in rows.tolist()], dtype=np.int64)


def _loss(space: Space, row: int, gpus: int) -> int:
    domains = _domains(space, row)
    return apart(domains, pick(domains, _idle(space, row), gpus))


def _domains(space: Space, row: int) -> list[Domain]:
    return [(card.link, card.numa) for card in space.nodes[row].cards]


def _several(space: Space, task: Task, rows: Ints) -> Candidates:
    free = space.free[rows].copy()
    order = np.argsort(~(space.fits_cards(task, rows)), axis=1, kind="stable")[:, : task.gpus]
    np.put_along_axis(free, order, 0, axis=1)
    return Candidates(rows, order[:, 0], space.cpu[rows] - task.cpu_milli, free, space.state[rows])


def _idle(space: Space, row: int) -> list[int]:
    return [int(c) for c in np.nonzero((space.free[row] == MILLI) & (space.mode[row] == Mode.SHARED))[0]]


def _same_kind(space: Space, rows: Ints, column: int) -> np.ndarray[tuple[int, ...], np.dtype[np.bool_]]:
    same = np.ones((len(rows), column), dtype=np.bool_)
    for what in (space.mode, space.turns, space.usable, space.kinds):
        same &= what[rows, :column] == what[rows, column, None]
    return same


def _put_instances(space: Space, profile: str, rows: Ints, columns: Ints, after: tuple[Ints, Ints]) -> None:
    free, state = after
    for index, (row, column) in enumerate(zip(rows.tolist(), columns.tolist(), strict=True)):
        tables = family(space.nodes[row].cards[column].family)
        start = tables.start(profile, int(state[index, column]))
        assert start is not None
        state[index, column] |= tables.profiles[profile].bits(start)
        free[index, column] = tables.free_milli(int(state[index, column]))
