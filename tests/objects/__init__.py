"""Object stores: a real S3 server, and the ways in which one fails."""
