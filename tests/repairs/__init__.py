"""Tests of schema migrations."""
