"""The gates that judge a window, one module a kind of evidence."""
