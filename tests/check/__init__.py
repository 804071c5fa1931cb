"""What check finds, and how it says it."""
