"""The command line: one file a command; a command parses, calls one library function, and prints its result.

stdout carries the result, stderr the talk. ``main`` turns errors into messages and exit codes, in one place.
"""

from ttlsnap.cli.app import app, main

__all__ = ["app", "main"]
