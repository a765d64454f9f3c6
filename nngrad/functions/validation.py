"""Classification errors. They are counts, through which no gradient passes."""

from __future__ import annotations

from ..graph import Array, Variable, composite
from ..graph.arguments import AtLeastOne
from . import array, comparison, movement, reduction, slicing
from .arithmetic import broadcast_shape
from .indexing import take_along_axis, where
from .loss import checked_axis


@composite
def top_n_error(x: Array, target: Array, /, axis: int | None = None, n: AtLeastOne = 1) -> Variable:
    """0 where the score of the right class is among the `n` highest, else 1.

    Equal scores of other classes count as higher, and so does NaN.

    Args:
        x: Scores, `(*before, classes, *after)`.
        target: The right classes, whole numbers `(*before, 1, *after)`; one that is out of range counts as an error.
        axis: The axis of the classes; None for the last.
        n: The number of highest scores that count as right.

    Returns:
        An array in the shape of `target`, in the floating dtype of `x`.

    Raises:
        ValueError: The axis is out of range, `target` has another shape, or `n` is below 1.
    """
    axis = checked_axis(x, target, axis)
    negative = comparison.less_scalar(target, val=0)
    known = where(negative, array.filled_like(target, x.shape[axis]), target)
    score = take_along_axis(x, known, axis=axis)
    above = reduction.sum(comparison.logical_not(comparison.less(x, score)), axis=axis, keepdims=True)
    return comparison.greater_scalar(above, val=n)


@composite
def binary_error(x: Array, target: Array, /) -> Variable:
    """1 where exactly one of `x` and `target` is at least 0.5, else 0.

    Args:
        x: Probabilities, of any shape.
        target: Truth values as numbers, of any shape that broadcasts with that of `x`.
    """
    broadcast_shape(x=x, target=target)
    high, wanted = (comparison.greater_equal_scalar(operand, val=0.5) for operand in (x, target))
    return comparison.not_equal(high, wanted)


@composite
def confusion_matrix(x: Array, target: Array, /, axis: int | None = None) -> Variable:
    """Counts of samples by true class and predicted class.

    Args:
        x: Scores, `(*before, classes, *after)`; the first class with the highest score is predicted.
        target: The right classes, whole numbers `(*before, 1, *after)`; one that is out of range is not counted.
        axis: The axis of the classes; None for the last.

    Returns:
        float32 `(classes, classes)`: the row is the right class, the column the predicted one.

    Raises:
        ValueError: The axis is out of range, or `target` has another shape.
    """
    axis = checked_axis(x, target, axis)
    classes = x.shape[axis]
    predicted = movement.reshape(reduction.argmax(x, axis=axis), shape=(-1,))
    right = array.cast(movement.reshape(target, shape=(-1,)), "int32")
    right = where(comparison.less_scalar(right, val=0), array.filled_like(right, classes), right)
    ones = array.constant(val=1, shape=right.shape)
    points = movement.stack(right, array.cast(predicted, "int32"), axis=-1)
    return slicing.put_points(ones, points, axes=(0, 1), shape=(classes, classes))
