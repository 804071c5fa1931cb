"""Names in outputs for people. They come from checkpoints, tables, policies and paths, and can contain anything.

``printable``        one line: a cell, a label, a line of a log
``printable_lines``  a text with lines
``printable_output`` the same for a terminal, or for the log of a build server
``printable_label``  a label of a metric, which identifies a name
``printable_json``   a JSON document
``shell_word``       a word of a command that the reader copies

Credentials in a URI, ``https://user:password@host``, are shown as ``[not shown]`` in all of them.

Characters that a terminal obeys, or that change the order or the lines of what is shown, are escaped as Python escapes
them. Letters and symbols of all scripts stay as they are. JSON keeps names exactly, since it has escapes of its own.
"""

from __future__ import annotations

import re
import shlex
import unicodedata

_HARMFUL = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})
"""Unicode's categories of control and format characters, surrogates, and separators of lines and paragraphs."""
_JOINERS = "\u200c\u200d"  # in emoji, and in words of some scripts
_COMMAND = re.compile(r"^([^\S\n]*):(?=:)|#(?=#\[|#vso\[)", re.MULTILINE)
"""GitHub obeys a line that begins with ``::``, also after spaces, and ``##[`` anywhere; Azure obeys ``##vso[``."""
_CREDENTIALS = re.compile(
    r'(?<=://)[^\s/@:"]*:[^\s/@"]*@|(?:(?<=s3://)|(?<=s3a://)|(?<=s3n://))[^\s/@:"]*:[^\s@"]*@', re.IGNORECASE
)
"""A secret key of S3 may contain slashes."""
_ESCAPE = re.compile(r"\\[xuUrt]")


def printable(text: str) -> str:
    """Return a text as one line without control characters."""
    text = _hide_credentials(text)
    return text if text.isprintable() else _escape(text, "")


def printable_lines(text: str) -> str:
    """Return a text without control characters except newlines."""
    text = _hide_credentials(text)
    return text if text.isprintable() else _escape(text.replace("\r\n", "\n"), "\n")


def printable_output(text: str) -> str:
    """Return a text without control characters except newlines, and without commands to a build server."""
    return _hide_commands(printable_lines(text))


def printable_label(text: str) -> str:
    """Return a text without control characters except newlines. Different texts have different results."""
    text = _hide_credentials(text)
    escaped = _escape(text, "\n")
    if escaped == text and not _ESCAPE.search(text):
        return text
    return _escape(text.replace("\\", "\\\\"), "\n")


def printable_json(document: str) -> str:
    """Return a JSON document in which control characters and commands are escaped. It has the same content."""
    document = _hide_credentials(document)
    made = "".join(_in_json(c) if _is_harmful(c) and c != "\n" else c for c in document)
    return _COMMAND.sub(lambda found: f"{found[1] or ''}\\u{ord(found[0][-1]):04x}", made)


def shell_word(text: str) -> str:
    """Return a text as one word of a POSIX shell, without control characters. Those need bash, zsh or ksh."""
    text = _hide_credentials(text)
    if printable(text) == text == _hide_commands(text):
        return shlex.quote(text)
    plain = text.replace("\\", "\\\\").replace("'", "\\'")
    return _hide_commands(f"$'{''.join(_in_bytes(c) if _is_harmful(c) else c for c in plain)}'")


def _hide_credentials(text: str) -> str:
    return _CREDENTIALS.sub("[not shown]@", text) if "://" in text else text


def _hide_commands(text: str) -> str:
    return _COMMAND.sub(lambda found: f"{found[1] or ''}\\x{ord(found[0][-1]):02x}", text)


def _escape(text: str, kept: str) -> str:
    made, before = [], ""
    for c in text:
        joins = c in _JOINERS and before > "\x7f"
        made.append(_in_python(c) if _is_harmful(c) and c not in kept and not joins else c)
        before = c
    return "".join(made)


def _is_harmful(c: str) -> bool:
    # XML cannot hold the last two code points of each plane.
    return unicodedata.category(c) in _HARMFUL or ord(c) & 0xFFFE == 0xFFFE


def _in_python(c: str) -> str:
    return c.encode("unicode_escape").decode("ascii")


def _in_json(c: str) -> str:
    data = c.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{data[at : at + 2].hex()}" for at in range(0, len(data), 2))


def _in_bytes(c: str) -> str:
    # A surrogate of the second half is a byte of a path that is not text.
    errors = "surrogateescape" if "\udc80" <= c <= "\udcff" else "surrogatepass"
    return "".join(f"\\x{byte:02x}" for byte in c.encode("utf-8", errors))
