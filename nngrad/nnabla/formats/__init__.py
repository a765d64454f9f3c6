"""nnabla's formats of files, for `nn.load_parameters`, `nn.save_parameters`, and `load_states` and `save_states` of
solvers.

    parameters.py    parameters
    states.py        solver states
    networks.py      reads networks (functions: functions.csv)
    writing.py       writes graphs as networks
"""

from ...files.formats import ParameterFormat, StateFormat, formats
from .parameters import READABLE, h5_of
from .states import read_states, write_states

formats.parameters.update(
    {name: ParameterFormat(read, h5_of if name == ".h5" else None) for name, read in READABLE.items()}
)
formats.states.update(dict.fromkeys((".h5", ".protobuf"), StateFormat(read_states, write_states)))
