"""Papers whose measurements can be repeated: a folder each, with what it prints as data and the page that compares."""
