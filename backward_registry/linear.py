"""Backward rules of products."""

import nngrad.functions as F

from . import backward


@backward(F.batch_matmul)
def batch_matmul_backward(f, gy):
    """y = a b: ga = gy b', gb = a' gy, each as a product with transpose flags"""
    a, b = f.inputs
    ta, tb = f.arguments
    ga = F.batch_matmul(b, gy, tb, True) if ta else F.batch_matmul(gy, b, False, not tb)
    gb = F.batch_matmul(gy, a, True, ta) if tb else F.batch_matmul(a, gy, not ta, False)
    return F.sum_to(ga, shape=a.shape), F.sum_to(gb, shape=b.shape)
