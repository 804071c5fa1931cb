"""Object stores: real servers, and the ways in which they fail."""
