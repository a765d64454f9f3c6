"""`python -m nngrad_command`: the `nngrad` command, without importing anything that could be broken."""

import sys

from .entry import main

sys.exit(main())
