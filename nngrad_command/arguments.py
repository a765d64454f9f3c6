"""Types of command line arguments for several commands."""

import argparse


def seconds(text: str) -> float:
    """Parse a number of seconds, for argparse.

    Raises:
        ArgumentTypeError: `text` is not a number above 0.
    """
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value <= 1e6:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds above 0")
    return value


def positive(text: str) -> int:
    """Parse an integer above 0, for argparse.

    Raises:
        ArgumentTypeError: `text` is not an integer above 0.
    """
    return _whole(text, 1, "not positive")


def natural(text: str) -> int:
    """Parse an integer of at least 0, for argparse.

    Raises:
        ArgumentTypeError: `text` is not an integer, or is negative.
    """
    return _whole(text, 0, "negative")


def _whole(text: str, least: int, otherwise: str) -> int:
    try:
        value = int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number") from None
    if value < least:
        raise argparse.ArgumentTypeError(f"{text} is {otherwise}")
    return value
