"""`python -m nngrad_command` is the `nngrad` command, with nothing imported that could be broken."""

import sys

from .entry import main

sys.exit(main())
