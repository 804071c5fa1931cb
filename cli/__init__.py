"""The command line, one file for each command. A command parses, calls one library function, and prints its result.

Results are on stdout, and everything else on stderr. ``main`` turns errors into messages and exit codes.
"""

from ttlsnap.cli.app import app, main

__all__ = ["app", "main"]
