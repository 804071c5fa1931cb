"""The commands that read a state, and change nothing: ``export``, ``diff``, ``explain`` and ``inspect``.

Their modules have the same names. ``export_plan`` describes the states as tables, which ``diff`` compares, too. The
others belong to ``inspect``.
"""
