"""The results store: run folders, tables and their manifest."""
