"""Which of several places are taken at which steps: asked for a stretch of steps at once, in logarithmic time."""

from __future__ import annotations


class Occupancy:
    """Places by number, each free at all steps at first.

    A segment tree over the steps, whose nodes hold sets of places as the bits of a number.

    Args:
        steps: How many steps there are.
    """

    def __init__(self, steps: int) -> None:
        self._first = 1 << max(steps - 1, 0).bit_length()
        """The node of the first step; that above a node has half its number."""
        self._throughout = [0] * (2 * self._first)
        """What was marked as taken at all steps below a node, and not at all of those below the node above it."""
        self._somewhere = [0] * (2 * self._first)
        """What was marked as taken at some step below a node, by it or by a node below."""

    def take(self, place: int, first: int, last: int) -> None:
        """Mark a place as taken from a step to another, both included."""
        throughout, somewhere, bit = self._throughout, self._somewhere, 1 << place
        left, right = first + self._first, last + self._first
        for node in (left >> 1, right >> 1):
            while node and not somewhere[node] & bit:
                somewhere[node] |= bit
                node >>= 1
        while left <= right:
            if left & 1:
                throughout[left] |= bit
                somewhere[left] |= bit
                left += 1
            if not right & 1:
                throughout[right] |= bit
                somewhere[right] |= bit
                right -= 1
            left >>= 1
            right >>= 1

    def taken(self, first: int, last: int) -> int:
        """The places that are taken at any step from a step to another, both included, as the bits of a number."""
        throughout, somewhere = self._throughout, self._somewhere
        left, right = first + self._first, last + self._first
        above_left, above_right = left >> 1, right >> 1
        found = 0
        while left <= right:
            if left & 1:
                found |= somewhere[left]
                left += 1
            if not right & 1:
                found |= somewhere[right]
                right -= 1
            left >>= 1
            right >>= 1
        while above_left != above_right:
            found |= throughout[above_left] | throughout[above_right]
            above_left >>= 1
            above_right >>= 1
        while above_left:
            found |= throughout[above_left]
            above_left >>= 1
        return found
