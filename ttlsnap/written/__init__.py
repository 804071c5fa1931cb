"""When entries were last written: ``--timestamp @written``, for state in which Spark stores no time.

The retained deltas or changelogs say which batch last wrote a key. What is older than they are may be in a ledger,
which ``maintain`` keeps in ttlsnap's own folder. Where both end, an entry counts as written at that time: it is at
least that old, so it is never dropped too early.
"""
