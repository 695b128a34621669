"""Circles in a graph of numbered nodes, and an order without them. Linear time, and no recursion at any depth."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import TypeAlias

# Per node, the nodes it needs.
Needs: TypeAlias = Sequence[Sequence[int]]


def circles(needs: Needs) -> list[list[int]]:
    """Sets of nodes that need each other, or one that needs itself; each sorted, in the order of their first node."""
    search = _Search(needs)
    for node in range(len(needs)):
        search.visit(node)
    return sorted(search.found)


class _Search:
    """Tarjan's algorithm over an explicit stack."""

    def __init__(self, needs: Needs) -> None:
        self._needs = needs
        self._number = [0] * len(needs)
        self._low = [0] * len(needs)
        self._open = bytearray(len(needs))
        self._stack: list[int] = []
        self._visited = 0
        self.found: list[list[int]] = []

    def visit(self, root: int) -> None:
        if self._number[root]:
            return
        trail = [(root, self._enter(root))]
        while trail:
            node, position = trail[-1]
            if position < len(self._needs[node]):
                trail[-1] = (node, position + 1)
                self._step(node, self._needs[node][position], trail)
                continue
            trail.pop()
            if trail:
                above = trail[-1][0]
                self._low[above] = min(self._low[above], self._low[node])
            if self._low[node] == self._number[node]:
                self._close(node)

    def _enter(self, node: int) -> int:
        self._visited += 1
        self._number[node] = self._low[node] = self._visited
        self._open[node] = 1
        self._stack.append(node)
        return 0

    def _step(self, node: int, to: int, trail: list[tuple[int, int]]) -> None:
        if not self._number[to]:
            trail.append((to, self._enter(to)))
        elif self._open[to]:
            self._low[node] = min(self._low[node], self._number[to])

    def _close(self, node: int) -> None:
        members: list[int] = []
        while True:
            member = self._stack.pop()
            self._open[member] = 0
            members.append(member)
            if member == node:
                break
        if len(members) > 1 or node in self._needs[node]:
            self.found.append(sorted(members))


def shortest_circle(needs: Needs, members: Sequence[int]) -> list[int]:
    """A way from the first member back to itself, as short as there is one; both ends are that member."""
    start, inside = members[0], set(members)
    came: dict[int, int] = {}
    waiting = deque([start])
    while waiting:
        node = waiting.popleft()
        for to in needs[node]:
            if to == start:
                way = [start]
                while node != start:
                    way.append(node)
                    node = came[node]
                return [*way[:1], *reversed(way[1:]), start]
            if to in inside and to not in came:
                came[to] = node
                waiting.append(to)
    raise ValueError("the members are no circle")


def walk(needs: Needs) -> list[int]:
    """Every node after all that it needs; otherwise as numbered, needs drawn forward. There must be no circle."""
    done = bytearray(len(needs))
    order: list[int] = []
    for root in range(len(needs)):
        trail = [] if done[root] else [(root, 0)]
        while trail:
            node, position = trail.pop()
            wanted = needs[node]
            while position < len(wanted) and done[wanted[position]]:
                position += 1
            if position < len(wanted):
                trail += [(node, position + 1), (wanted[position], 0)]
            elif not done[node]:
                done[node] = 1
                order.append(node)
    return order
