"""The compacted store: tables of many runs in few files, beside the run folders, which stay the truth."""
