"""The JSON document of a command as one HTML page, which needs no other file, no network and no script.

``render`` takes the document that ``--format json`` prints, so a page shows what the document has. Keys and values of
entries, and texts that may quote them, are left out unless ``show_keys`` is set.
"""
