"""A store in a bucket, or wherever fsspec reaches: pushed there with its compacted tables, read by its catalogues."""
