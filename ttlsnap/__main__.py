"""``python -m ttlsnap``: the command line."""

from ttlsnap.cli import main

main()
