"""Look up files beside the file that names them, and check paths that others gave."""
