"""The packages that only some targets and outputs need, and the extra of ttlsnap that installs each of them."""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass
from importlib import metadata

from ttlsnap.errors import UsageError
from ttlsnap.quoting import quotes_nothing


@dataclass(frozen=True)
class OptionalPackage:
    """A package: the name of its module, the extra that installs it, and what it is needed for."""

    module: str
    extra: str
    purpose: str


PACKAGES = {
    "delta-spark": OptionalPackage("delta", "delta", "to start Spark with Delta"),
    "deltalake": OptionalPackage("deltalake", "delta", "to write dropped entries to a Delta table"),
    "pyroaring": OptionalPackage("pyroaring", "delta", "to read the rows of a Delta table"),
    "obstore": OptionalPackage("obstore", "objects", "to open an object store"),
    "hdfs-native": OptionalPackage("hdfs_native", "hdfs", "to open HDFS"),
    "jinja2": OptionalPackage("jinja2", "html", "to write a page"),
}


def require_package(name: str) -> None:
    """Raise UsageError unless an optional package is installed. The message names the extra that installs it."""
    package = PACKAGES[name]
    if not _is_installed(package.module):
        words = (
            f"the package {name} is not installed; ttlsnap needs it {package.purpose}. Nothing was changed. Install it "
            f"with: pip install 'ttlsnap[{package.extra}]'"
        )
        raise UsageError(quotes_nothing(words))


def describe_installed(*packages: str) -> str:
    """Return the packages with their versions, as in "pyspark 4.2.0 and delta-spark 4.4.0"."""
    return " and ".join(f"{package} {_version(package)}" for package in packages)


def _is_installed(module: str) -> bool:
    spec = importlib.util.find_spec(module)
    # A folder of that name in the current directory looks like a package, but has no loader of a module.
    return spec is not None and spec.origin is not None


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "(unknown version)"
