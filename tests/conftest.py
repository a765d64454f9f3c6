"""What holds for all tests: they compile what they run, whatever the disk has."""

import os

os.environ.setdefault("NNGRAD_DISK_CACHE", "off")
