"""nnabla's communicators: exchange arrays and gradients between processes, each with its own graph."""

from .communicator import Communicator as Communicator
from .exchanges import AllReduceCallback as AllReduceCallback
from .names import Comm as Comm
from .names import DataParalellCommunicator as DataParalellCommunicator
from .names import DataParallelCommunicator as DataParallelCommunicator
from .names import Dist as Dist
from .names import MultiProcessCommunicator as MultiProcessCommunicator
from .names import MultiProcessDataParalellCommunicator as MultiProcessDataParalellCommunicator
from .names import MultiProcessDataParallelCommunicator as MultiProcessDataParallelCommunicator
