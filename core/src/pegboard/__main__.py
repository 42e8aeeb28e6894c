"""``python -m pegboard`` is the command `peg`."""

from pegboard.cli import main

main()
