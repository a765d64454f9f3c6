"""nnabla's formats of files, for `nn.load_parameters`, `nn.save_parameters`, and `load_states` and `save_states` of
solvers.

    parameters.py    parameters
    states.py        solver states
    networks.py      reads networks (functions: functions.csv)
    writing.py       writes graphs as networks
"""

from ...files.formats import ParameterFormat, StateFormat, parameter_formats, state_formats
from .parameters import READABLE, h5_of
from .states import read_states, write_states

parameter_formats.update(
    {name: ParameterFormat(read, h5_of if name == ".h5" else None) for name, read in READABLE.items()}
)
state_formats.update(dict.fromkeys((".h5", ".protobuf"), StateFormat(read_states, write_states)))
