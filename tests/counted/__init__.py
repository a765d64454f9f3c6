"""What some forty cases cost, counted and recorded: `python -m tests.counted` is the command."""
