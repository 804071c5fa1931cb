"""``maintain``: many checkpoints and tables under one policy, unattended.

``policy`` reads and checks the file, ``rules`` turns its rules into transformer factories, and ``runs`` does the work,
several targets at a time.
"""
