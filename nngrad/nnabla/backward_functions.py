"""nnabla's module of backward rules, which `backward_registry` provides here."""

from backward_registry import register as register
from backward_registry import registry as registry
from backward_registry import show_registry as show_registry
