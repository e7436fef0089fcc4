"""Gates: whether the numbers of a measured window count. One module a gate in `gates/`, found by `registry`."""
