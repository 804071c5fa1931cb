"""Delta state tables, written by real streams, and what a run makes of them."""
