"""``python -m pegboard`` is the command `peg`."""

import sys

if not sys.flags.safe_path and sys.path:
    # The current directory is not a place to import from: a repository could bring its own modules.
    del sys.path[0]

from pegboard.cli import main

main()
