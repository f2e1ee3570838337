"""Which passes run, in which order, and safely."""
