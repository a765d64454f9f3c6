"""JAX functions as ops: traced, told apart, and differentiated. `F.jax_function` is made of this.

The names below are all that packages outside of the kernel may take of it; setup.cfg says so.

*Jaxprs.* `jaxpr_for(function, specs)` traces a function of arrays. `alone(equation)` is a jaxpr of one equation,
`called_function(equation)` the jaxpr that it calls, `bodies_of(equation)` those nested in it, `name_of` and
`parameters_of` its primitive and parameters, `equations_in(jaxpr)` and `primitives_in(jaxpr)` those of nested ones too;
all of them hide how versions of JAX differ. `CALLS` and `CUSTOM_RULES` are the primitives that only call a jaxpr, and
those that have a derivative of a user's own. `count_closed_over(call)` and `counts_of_scan(parameters)` count inputs of
these. `holds_tracers(closed)`: its constants belong to a trace around it, `READS_AROUND` is the message for that.
`without_unread(function)` is a function of arrays without what its results do not need.

*Structures.* `structure_of(jaxpr)` is equal for equal computations, custom derivatives included; `structure_of_called`
and `structure_of_rules` are those of one call; `frozen` makes a key of any parameter, `key_of_array` and `array_value`
of an array, `ByIdentity` of an object that is only equal to itself. `deriving_rules_once()` is a scope in which each
custom rule is read once. `is_told_what_moves(jaxpr)`: a rule inside depends on which inputs move.

*Functions.* A `TracedFunction` is the static argument of the ops `jax_derivative` (also the function itself) and
`jax_gradient`, and of `custom_jax_derivative` and `custom_jax_gradient`, whose derivative need not be the true one;
`inputs_of` describes their inputs. `along`, `back` and `value_of_back` are JAX's JVP, its VJP, and the value that a
custom rule gives. `StepsOnlySelect` refuses loops whose derivative is not that of what they find.

*Calls.* `JaxFunction` is what `F.jax_function` returns, to be subclassed: it has `Given` leaves (arrays) and `Fixed`
ones, a `Traced` function for each kind of them, and caches a `Trace` under its `Key`.
`kept_with(function, *options)` is a cache that lives as long as a function, `options_as_tuples` checks the options of
`jax_function`. `KeyData` holds JAX's random keys in pytrees of Variables; `is_key` tells them.
"""

from ...graph.by_jax import along as along
from ...graph.by_jax import back as back
from ...graph.by_jax import value_of_back as value_of_back
from ...graph.jaxpr import CALLS as CALLS
from ...graph.jaxpr import CUSTOM_RULES as CUSTOM_RULES
from ...graph.jaxpr import bodies_of as bodies_of
from ...graph.jaxpr import equations_in as equations_in
from ...graph.jaxpr import name_of as name_of
from ...graph.jaxpr import parameters_of as parameters_of
from ...graph.jaxpr import primitives_in as primitives_in
from ...graph.jaxpr import without_unread as without_unread
from .jax_derivatives import custom_jax_derivative as custom_jax_derivative
from .jax_derivatives import custom_jax_gradient as custom_jax_gradient
from .jax_derivatives import inputs_of as inputs_of
from .jax_derivatives import jax_derivative as jax_derivative
from .jax_derivatives import jax_gradient as jax_gradient
from .jax_functions import Fixed as Fixed
from .jax_functions import Given as Given
from .jax_functions import JaxFunction as JaxFunction
from .jax_functions import Key as Key
from .jax_functions import Trace as Trace
from .jax_functions import Traced as Traced
from .jax_functions import kept_with as kept_with
from .jax_functions import options_as_tuples as options_as_tuples
from .jaxprs import alone as alone
from .jaxprs import called_function as called_function
from .jaxprs import count_closed_over as count_closed_over
from .jaxprs import counts_of_scan as counts_of_scan
from .jaxprs import holds_tracers as holds_tracers
from .jaxprs import jaxpr_for as jaxpr_for
from .key_data import KeyData as KeyData
from .key_data import is_key as is_key
from .structure import READS_AROUND as READS_AROUND
from .structure import ByIdentity as ByIdentity
from .structure import StepsOnlySelect as StepsOnlySelect
from .structure import TracedFunction as TracedFunction
from .structure import array_value as array_value
from .structure import deriving_rules_once as deriving_rules_once
from .structure import frozen as frozen
from .structure import is_told_what_moves as is_told_what_moves
from .structure import key_of_array as key_of_array
from .structure import structure_of as structure_of
from .structure import structure_of_called as structure_of_called
from .structure import structure_of_rules as structure_of_rules
