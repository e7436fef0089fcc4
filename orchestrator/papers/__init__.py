"""Papers whose measurements can be repeated: a folder each, with its printed values and the page that compares."""
