"""What is known of blocks and of functions."""
