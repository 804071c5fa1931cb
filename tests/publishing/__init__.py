"""Publishing, recovering and rolling back lose nothing, even if they are killed at any step.

``zygote``      a warm process that forks a child for each command, so that a thousand commands take only minutes
``commands``    the tests' handle of that process: it runs a command, alone or under strace with an injected fault
``syscalls``    a parser of strace's log: the calls that change a checkpoint, each with its name, number and path
``trees``       checkpoints as trees of bytes, which equal the old one or the new one, or are fenced

``TTLSNAP_MATRIX=full`` (``make test-matrix``) runs the wide set.
"""
