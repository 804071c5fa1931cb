"""``maintain``: many checkpoints and tables under one policy, unattended.

``policy`` reads the file and checks it whole, ``rules`` makes its rules a transformer factory, ``runs`` does the work,
target by target, side by side.
"""
