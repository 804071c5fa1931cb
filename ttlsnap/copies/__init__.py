"""Copies of a checkpoint as of one batch: what belongs to one, how it is sent, and how it is verified."""
