"""The part of the package that ``pyproject.toml`` cannot describe yet: the C library, which is optional."""

from setuptools import Extension, setup

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
    # The library uses nothing of Python, so one wheel fits all versions.
    options={"bdist_wheel": {"py_limited_api": "cp311"}},
)
