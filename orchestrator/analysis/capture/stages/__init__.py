"""The compiled part of the capture reader, from bytes to tables of numbers; see `compiled`."""
