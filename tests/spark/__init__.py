"""Tests of ``ttlsnap.spark``."""
