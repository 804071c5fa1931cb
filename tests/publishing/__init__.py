"""Nothing is lost: publishing, recovering and rolling back, cut off at every step.

``zygote``      a warm process that forks one child for each command, so that a thousand of them cost minutes, not hours
``commands``    that process seen from the tests: run a command, or run it under strace with a fault injected
``syscalls``    what strace wrote: the calls that change a checkpoint, each by its name, number and path
``trees``       checkpoints as trees of bytes: equal to the old one, to the new one, fenced, or something else

``TTLSNAP_MATRIX=full`` (``make test-matrix``) runs the wide set.
"""
