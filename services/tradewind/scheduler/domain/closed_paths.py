"""Finds closed paths in a graph: paths along its edges that end where they began."""

from collections import Counter
from collections.abc import Sequence


def closed_paths(successors: Sequence[Sequence[int]]) -> list[list[int]]:
    """Return one closed path for each group of nodes that all reach each other, in the order of their first nodes.

    `successors[n]` lists the nodes that node n has an edge to. A path begins and ends with the group's lowest node and
    is a shortest closed path through it; a node with an edge to itself gives [n, n]. Linear time, no recursion.
    """
    group_of = _groups(successors)
    size = Counter(group_of)
    paths = []
    done: set[int] = set()
    for node, group in enumerate(group_of):
        if group not in done and (size[group] > 1 or node in successors[node]):
            done.add(group)
            paths.append(_path_back_to(node, successors, group_of))
    return paths


def _groups(successors: Sequence[Sequence[int]]) -> list[int]:
    """Return each node's group: its strongly connected component, by Tarjan's algorithm with an explicit stack."""
    count = len(successors)
    unseen = -1
    order = [unseen] * count
    lowest = [0] * count
    group_of = [-1] * count
    open_nodes: list[int] = []
    seen = groups = 0
    for root in range(count):
        if order[root] != unseen:
            continue
        order[root] = lowest[root] = seen
        seen += 1
        open_nodes.append(root)
        path = [(root, iter(successors[root]))]
        while path:
            node, rest = path[-1]
            for target in rest:
                if order[target] == unseen:
                    order[target] = lowest[target] = seen
                    seen += 1
                    open_nodes.append(target)
                    path.append((target, iter(successors[target])))
                    break
                if group_of[target] < 0:
                    lowest[node] = min(lowest[node], order[target])
            else:
                path.pop()
                if path:
                    above = path[-1][0]
                    lowest[above] = min(lowest[above], lowest[node])
                if lowest[node] == order[node]:
                    while True:
                        member = open_nodes.pop()
                        group_of[member] = groups
                        if member == node:
                            break
                    groups += 1
    return group_of


def _path_back_to(start: int, successors: Sequence[Sequence[int]], group_of: list[int]) -> list[int]:
    """Return a shortest closed path through `start`, which must lie on one, by breadth-first search in its group."""
    came_from = {start: start}
    front = [start]
    while front:
        reached = []
        for node in front:
            for target in successors[node]:
                if target == start:
                    path = [start, node]
                    while path[-1] != start:
                        path.append(came_from[path[-1]])
                    return path[::-1]
                if group_of[target] == group_of[start] and target not in came_from:
                    came_from[target] = node
                    reached.append(target)
        front = reached
    raise ValueError(f"node {start} is not on a closed path")
