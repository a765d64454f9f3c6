"""Sets of elements by label: arrays of labels, each of which stands for a set of whole numbers."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import numpy as np

Labels = np.ndarray[Any, np.dtype[np.int64]]
"""For each element of an array the label of a set; 0 is the empty one."""


class ElementSets:
    """Sets of the numbers from 0 to `count - 1`, each of which has one label.

    Elements that depend on the same things share a label, so a union of arrays takes time in the distinct pairs of
    labels in it and not in its elements.
    """

    def __init__(self, count: int) -> None:
        self.members: list[frozenset[int]] = [frozenset(), *[frozenset((k,)) for k in range(count)]]
        self._labels = {members: label for label, members in enumerate(self.members)}
        self._unions: dict[tuple[int, int], int] = {}

    def singletons(self, shape: tuple[int, ...]) -> Labels:
        """Labels of {0}, {1}, ... in the order of an array's elements."""
        return np.arange(1, 1 + math.prod(shape), dtype=np.int64).reshape(shape)

    def union(self, a: Labels, b: Labels) -> Labels:
        """The union of two arrays of sets, which are broadcast together."""
        a, b = np.broadcast_arrays(a, b)
        low, high = np.minimum(a, b), np.maximum(a, b)
        pairs, places = np.unique(low * len(self.members) + high, return_inverse=True)
        count = len(self.members)
        labels = np.array([self._of_pair(*divmod(int(pair), count)) for pair in pairs], np.int64)
        return labels[places].reshape(a.shape)

    def along(self, labels: Labels, axes: Iterable[int]) -> Labels:
        """The union along some axes, which stay with size 1."""
        axes = tuple(axes)
        shape = tuple([1 if a in axes else n for a, n in enumerate(labels.shape)])
        rows = np.moveaxis(labels, axes, range(len(axes)))
        rows = rows.reshape(math.prod(rows.shape[: len(axes)]), math.prod(rows.shape[len(axes) :]))
        return self._halved(rows).reshape(shape)

    def grouped(self, labels: Labels, groups: Labels, count: int) -> Labels:
        """The union of the labels of each of `count` groups."""
        order = np.argsort(groups, kind="stable")
        labels, groups = labels[order], groups[order]
        turn = np.arange(len(groups)) - np.searchsorted(groups, groups)
        found = np.zeros(count, np.int64)
        for k in range(int(turn.max(initial=-1)) + 1):
            now = turn == k
            found[groups[now]] = self.union(found[groups[now]], labels[now])
        return found

    def _halved(self, rows: Labels) -> Labels:
        """The union of all rows."""
        if not len(rows):
            return np.zeros(rows.shape[1:], np.int64)
        while len(rows) > 1:
            half = len(rows) // 2
            rows = np.concatenate([self.union(rows[:half], rows[half : 2 * half]), rows[2 * half :]])
        united: Labels = rows[0]
        return united

    def _of_pair(self, a: int, b: int) -> int:
        if a == 0 or a == b:
            return b
        label = self._unions.get((a, b))
        if label is None:
            members = self.members[a] | self.members[b]
            label = self._unions[a, b] = self._labels.setdefault(members, len(self.members))
            if label == len(self.members):
                self.members.append(members)
        return label
