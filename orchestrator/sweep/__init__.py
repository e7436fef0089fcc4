"""Many runs from one file: what is left of them, in which order, and how far they are."""
