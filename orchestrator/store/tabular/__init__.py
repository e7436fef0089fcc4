"""Tables of runs: the files, those that are made of manifests, and the views of them."""
