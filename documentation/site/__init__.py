"""What builds the site; alone in its folder, which MkDocs puts in front of the path that modules are found by."""
