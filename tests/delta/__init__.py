"""Runs on Delta state tables that real streams write."""
