"""The part of the package that ``pyproject.toml`` cannot describe: the C library, which is optional."""

from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext


class BuildLibrary(build_ext):
    """The library is loaded with ctypes. Its name must not look like that of a Python module."""

    def get_ext_filename(self, fullname: str) -> str:
        return str(Path(*fullname.split(".")).with_suffix(".so.1"))


setup(
    # Without a C compiler, setuptools prints a warning and installs ttlsnap without the library.
    ext_modules=[
        Extension(
            "ttlsnap.native.kernels",
            ["ttlsnap/native/kernels.c"],
            extra_compile_args=["-O3"],
            optional=True,
            py_limited_api=True,
        )
    ],
    cmdclass={"build_ext": BuildLibrary},
    # The library uses nothing of Python, so one wheel fits all versions.
    options={"bdist_wheel": {"py_limited_api": "cp311"}},
)
