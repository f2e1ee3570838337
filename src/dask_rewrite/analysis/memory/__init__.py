"""What a graph will hold while it runs, found out without running it."""
