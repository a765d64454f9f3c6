"""`python -m nngrad` runs the `nngrad` command, where nngrad can be imported."""

import sys

from nngrad_command.entry import main

sys.exit(main())
