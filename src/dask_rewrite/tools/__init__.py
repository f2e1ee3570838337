"""What people look at: explain, bisect, preflight and the command line."""
